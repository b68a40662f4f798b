//! `convoke top`: a node's view of the cluster in full screen.

mod draw;
mod gather;
mod metrics;
mod model;

use crate::args::TopArgs;
use convoke_cli::output::{print_json, unix_ms};
use convoke_cli::{CommandError, Result, Signals, addresses, tls, token};
use convoke_client::Client;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use gather::Gatherer;
use model::{Key, Model};
use ratatui::DefaultTerminal;
use std::io::{IsTerminal, stdin, stdout};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// Maximum number of queued keys.
const KEYS_MAX: usize = 64;
/// How often the key reader checks whether it is still needed.
const LOOK: Duration = Duration::from_millis(100);
/// Minimum interval between redraws because of changes.
const DRAW: Duration = Duration::from_millis(100);

pub(crate) async fn run(arguments: &TopArgs) -> Result {
    if arguments.json {
        return look(arguments).await;
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(CommandError::usage("top needs a terminal: use --json for files and pipes"));
    }
    let mut signals = Signals::listen()?;
    let addresses = addresses(&arguments.connect)?;
    let (tls, token) = (tls(&arguments.connect)?, token(&arguments.connect)?);
    let mut builder = Client::builder().seeds(addresses.clone());
    if let Some(token) = &token {
        builder = builder.token(token.clone());
    }
    if let Some(tls) = &tls {
        builder = builder.tls(tls.clone());
    }
    let client = builder.build()?;
    let gatherer = Gatherer::new(addresses, arguments.connect.timeout, tls.as_ref(), token.as_ref())?;
    let mut screen = Screen::open()?;
    tokio::select! {
        outcome = show(&mut screen.0, gatherer, &client, arguments.interval) => outcome,
        _ = signals.next() => Ok(()),
    }
}

/// Prints the content of the screen once, as JSON.
async fn look(arguments: &TopArgs) -> Result {
    let (tls, token) = (tls(&arguments.connect)?, token(&arguments.connect)?);
    let mut gatherer =
        Gatherer::new(addresses(&arguments.connect)?, arguments.connect.timeout, tls.as_ref(), token.as_ref())?;
    let mut model = Model::default();
    model.answered(Instant::now(), gatherer.gather_from_any().await?);
    tokio::time::sleep(arguments.interval).await;
    model.answered(Instant::now(), gatherer.gather_from_any().await?);
    print_json(&model.look())
}

/// The terminal, restored on drop: after a return, an error or a panic.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Screen> {
        // Also installs a panic hook.
        ratatui::try_init().map(Screen).map_err(|error| cannot(&error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn cannot(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot use this terminal: {error}"))
}

async fn show(terminal: &mut DefaultTerminal, gatherer: Gatherer, client: &Client, every: Duration) -> Result {
    let mut model = Model::default();
    let mut watch = client.watch("")?;
    let (asked, mut answers) = mpsc::channel(1);
    let _asking = tokio::task::JoinSet::from_iter([ask(gatherer, every, asked)]);
    let mut keys = keys();
    let mut drawing = interval(DRAW);
    drawing.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stale = true;
    loop {
        tokio::select! {
            input = keys.recv() => match input {
                Some(Input::Key(key)) if !model.press(key) => return Ok(()),
                Some(Input::Key(_) | Input::Resized) => {
                    terminal.draw(|frame| draw::draw(frame, &mut model, Instant::now())).map_err(|e| cannot(&e))?;
                }
                None => return Err(CommandError::failed("the terminal was closed")),
            },
            answer = answers.recv() => {
                match answer {
                    Some(Ok(answer)) => model.answered(Instant::now(), answer),
                    Some(Err(failure)) => model.failed(failure.to_string()),
                    None => return Err(CommandError::failed("internal error: the polling task ended")),
                }
                stale = true;
            }
            event = watch.next() => match event {
                Some(event) => {
                    model.happened(Instant::now(), unix_ms(), &event);
                    stale = true;
                }
                None => return Err(CommandError::failed("the watch ended")),
            },
            _ = drawing.tick(), if stale => {
                terminal.draw(|frame| draw::draw(frame, &mut model, Instant::now())).map_err(|e| cannot(&e))?;
                stale = false;
            }
        }
    }
}

/// Queries the node at every interval; a late answer delays the next query.
async fn ask(mut gatherer: Gatherer, every: Duration, sender: mpsc::Sender<Result<model::Answers>>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if sender.send(gatherer.gather().await).await.is_err() {
            return;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Key(Key),
    Resized,
}

/// Keys and size changes, read by a thread that ends when the receiver is dropped.
fn keys() -> mpsc::Receiver<Input> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let read = match event::poll(LOOK) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let Ok(event) = read else { return };
            if let Some(input) = meaning(&event)
                && sender.blocking_send(input).is_err()
            {
                return;
            }
        }
    });
    keys
}

fn meaning(event: &Event) -> Option<Input> {
    let key = match event {
        Event::Resize(..) => return Some(Input::Resized),
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => return None,
        Event::Key(key) => key,
        _ => return None,
    };
    let meant = match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Tab | KeyCode::Right => Key::NextPanel,
        KeyCode::BackTab | KeyCode::Left => Key::PreviousPanel,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::Char('p' | ' ') => Key::Pause,
        _ => return None,
    };
    Some(Input::Key(meant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::Terminal;

    /// Set when the test runs itself in a terminal.
    const INSIDE: &str = "CONVOKE_TEST_PANIC";

    /// Runs itself in a terminal: there it opens the screen and panics.
    #[test]
    fn a_panic_restores_the_terminal() {
        if std::env::var_os(INSIDE).is_some() {
            let mut screen = Screen::open().unwrap();
            screen.0.draw(|frame| frame.render_widget("on the screen", frame.area())).unwrap();
            // Waits until the test has seen the screen.
            let _ = event::read();
            panic!("panic of the test");
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "top::tests::a_panic_restores_the_terminal", "--nocapture"]).env(INSIDE, "1");
        // Short enough for the screen.
        command.env("RUST_BACKTRACE", "0");
        let mut terminal = Terminal::run(&mut command, 80, 24);
        terminal.shows("on the screen");
        assert!(terminal.in_alternate_screen() && !terminal.is_cooked());
        terminal.press("x");
        assert!(!terminal.ended().success(), "it did panic");
        convoke_testkit::until("the terminal is as before", || terminal.is_cooked() && !terminal.in_alternate_screen());
        // The panic message is readable there.
        terminal.shows("panic of the test");
    }

    #[test]
    fn keys_that_quit() {
        let press = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        let quit = Some(Input::Key(Key::Quit));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), quit);
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), quit);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), quit);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
