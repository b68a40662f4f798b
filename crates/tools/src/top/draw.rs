//! Draws the model at any terminal size.

use super::model::{Model, Panel};
use convoke_cli::output::{ago, clock_time};
use convoke_proto::v1::{self, NodeState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};
use std::time::{Duration, Instant};

/// Below this size the screen is not readable.
const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 10;
/// Two columns from this width on.
const WIDTH_TWO: u16 = 110;
/// Lines above the panels.
const HEAD: u16 = 5;
/// Answers older than this are marked as old.
const OLD: Duration = Duration::from_secs(5);

pub(crate) fn draw(frame: &mut Frame<'_>, model: &mut Model, now: Instant) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        frame.render_widget(Paragraph::new(format!("too small: {WIDTH_MIN}x{HEIGHT_MIN} at least")), area);
        return;
    }
    let head = Layout::vertical([Constraint::Length(HEAD), Constraint::Min(0), Constraint::Length(1)]);
    let [top, body, bottom] = head.areas(area);
    frame.render_widget(header(model, now, top.width), top);
    frame.render_widget(footer(model), bottom);
    let nodes_height = model.answers.as_ref().map_or(0, |answers| answers.nodes.len()) + 3;
    // In two columns there is room for more rows.
    let share = if area.width >= WIDTH_TWO { body.height / 2 } else { body.height / 3 };
    let nodes_height = u16::try_from(nodes_height).unwrap_or(u16::MAX).min(share).max(4);
    let (nodes_area, services_area, events_area) = if area.width >= WIDTH_TWO {
        let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(body);
        let [upper, lower] = Layout::vertical([Constraint::Length(nodes_height), Constraint::Min(0)]).areas(left);
        (upper, lower, right)
    } else {
        let rows = [Constraint::Length(nodes_height), Constraint::Fill(1), Constraint::Fill(1)];
        let [upper, middle, lower] = Layout::vertical(rows).areas(body);
        (upper, middle, lower)
    };
    nodes(frame, model, nodes_area);
    services(frame, model, services_area, now);
    events(frame, model, events_area);
}

fn header(model: &Model, now: Instant, width: u16) -> Paragraph<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(answers) = &model.answers else {
        let why = model.error.clone().unwrap_or_else(|| "asking".to_owned());
        return Paragraph::new(vec![Line::from(Span::styled("convoke top", bold)), Line::from(why)]);
    };
    let status = &answers.status;
    let counts = status.counts.unwrap_or_default();
    let old = model.age(now).filter(|age| *age > OLD);
    let state = match (&model.error, status.ready, status.degraded.as_slice()) {
        (Some(why), _, _) => Span::styled(format!("no answer: {why}"), Color::Red),
        (None, _, _) if old.is_some() => Span::styled("no newer answer", Color::Yellow),
        (None, false, _) => Span::styled("not ready", Color::Yellow),
        (None, true, []) => Span::styled("ready", Color::Green),
        (None, true, reasons) => Span::styled(format!("degraded: {}", reasons.join("; ")), Color::Yellow),
    };
    let first = Line::from(vec![
        Span::styled(format!("{} ", status.id), bold),
        state,
        Span::raw(format!("  cluster {}, {}, for {}", status.cluster, answers.address, ago(status.uptime_ms))),
    ]);
    let holds = Line::from(format!(
        "{} members, {} clients, {} watchers, {} links",
        counts.members, counts.sessions, counts.watchers, counts.links
    ));
    let log_status = answers.log.as_ref();
    Paragraph::new(vec![first, holds, log(log_status), coordination(log_status), rates(model, width)])
}

/// The leader, the progress of the log and the role of this node; or the reason why the log is unavailable.
fn log(log: Option<&v1::LogStatusResponse>) -> Line<'static> {
    let Some(log) = log else { return Line::from("log: this node has none") };
    if !log.fault.is_empty() {
        return Line::from(vec![Span::raw("log: "), Span::styled(format!("stopped: {}", log.fault), Color::Red)]);
    }
    if !log.available {
        let voters = log.voters.join(", ");
        let why = if voters.is_empty() { "no leader".to_owned() } else { format!("no leader; voters {voters}") };
        return Line::from(vec![Span::raw("log: "), Span::styled(why, Color::Red)]);
    }
    let place = if log.role == "outside" { "no replica here".to_owned() } else { format!("{} here", log.role) };
    Line::from(format!(
        "log: leader {}, epoch {}, {} voters; {place}, commit {}, applied {}, {} keys",
        log.leader,
        log.epoch,
        log.voters.len(),
        log.commit,
        log.applied,
        log.keys
    ))
}

/// Leases and locks, and the limits that are nearly reached.
fn coordination(log: Option<&v1::LogStatusResponse>) -> Line<'static> {
    let Some(log) = log.filter(|log| log.fault.is_empty() && log.level > 0) else { return Line::from("locks: -") };
    let mut shown = vec![Span::raw(format!(
        "locks: {} held, {} waiting; {} leases; ",
        log.lock_holders, log.lock_waiters, log.leases
    ))];
    match log.quota.as_str() {
        "" => shown.push(Span::raw("quota below 80 %")),
        nearly => shown.push(Span::styled(nearly.to_owned(), Color::Red)),
    }
    Line::from(shown)
}

/// As many rates as fit.
fn rates(model: &Model, width: u16) -> Line<'static> {
    let Some(rates) = &model.rates else { return Line::from("per second: not known yet") };
    let mut text = "per second:".to_owned();
    for (index, (name, rate)) in rates.iter().enumerate() {
        let next = format!("{} {name} {}", if index == 0 { "" } else { "," }, short(*rate));
        if text.len() + next.len() > usize::from(width) {
            break;
        }
        text += &next;
    }
    Line::from(text)
}

/// At most five characters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn footer(model: &Model) -> Paragraph<'static> {
    let paused = if model.paused { "p resume (changes paused)" } else { "p pause" };
    Paragraph::new(format!("q quit  tab panel  arrows scroll  {paused}"))
        .style(Style::new().add_modifier(Modifier::DIM))
}

fn block(model: &Model, panel: Panel, title: String) -> Block<'static> {
    let style = if model.focus == panel { Style::new().fg(Color::Cyan) } else { Style::new() };
    Block::bordered().title(title).border_style(style)
}

/// Number of rows that fit between the borders and below the header line.
fn room(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(3))
}

fn nodes(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    let all = model.answers.as_ref().map(|answers| answers.nodes.clone()).unwrap_or_default();
    let first = model.first_row(Panel::Nodes, all.len(), room(area));
    let rows = all.iter().skip(first).take(room(area)).map(|node| {
        let (name, colour) = match node.state() {
            NodeState::Up => ("up", Color::Green),
            NodeState::Lost => ("lost", Color::Yellow),
            NodeState::Failed => ("failed", Color::Red),
            NodeState::Left => ("left", Color::DarkGray),
            NodeState::Connecting => ("connecting", Color::Yellow),
            NodeState::Distant => ("distant", Color::Reset),
            NodeState::Unspecified => ("unknown", Color::Yellow),
        };
        let mut remarks = Vec::new();
        remarks.extend(node.self_.then_some("this node"));
        remarks.extend(node.drained.then_some("drained"));
        Row::new(vec![
            Span::raw(node.id.clone()),
            Span::styled(name, colour),
            Span::raw(node.region.clone()),
            Span::raw(node.address.clone()),
            Span::raw(remarks.join(", ")),
        ])
    });
    let widths =
        [Constraint::Fill(2), Constraint::Length(10), Constraint::Fill(1), Constraint::Fill(3), Constraint::Length(9)];
    let table = Table::new(rows, widths).header(heading(["node", "state", "region", "clients", ""])).block(block(
        model,
        Panel::Nodes,
        format!(" nodes ({}) ", all.len()),
    ));
    frame.render_widget(table, area);
}

fn services(frame: &mut Frame<'_>, model: &mut Model, area: Rect, now: Instant) {
    let all = model.services(now);
    let first = model.first_row(Panel::Services, all.len(), room(area));
    let rows = all.iter().skip(first).take(room(area)).map(|busy| {
        let service = &busy.service;
        let red_above_0 = |count| if count > 0 { Color::Red } else { Color::Reset };
        let (down, critical) = (red_above_0(service.down), red_above_0(service.critical));
        Row::new(vec![
            Span::raw(service.service.clone()),
            Span::raw(service.up.to_string()),
            Span::styled(service.down.to_string(), down),
            Span::raw(service.drained.to_string()),
            Span::styled(service.critical.to_string(), critical),
            Span::raw(busy.changes.to_string()),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(11),
    ];
    let table = Table::new(rows, widths)
        .header(heading(["service", "up", "down", "drained", "critical", "changes/min"]))
        .block(block(model, Panel::Services, format!(" services ({}) ", all.len())));
    frame.render_widget(table, area);
}

fn events(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    let count = model.changes.len();
    let first = model.first_row(Panel::Events, count, room(area));
    let rows = model.changes.iter().skip(first).take(room(area)).map(|change| {
        let colour = match change.what {
            "down" | "critical" => Color::Red,
            "up" | "register" => Color::Green,
            "unregister" => Color::Yellow,
            _ => Color::Reset,
        };
        Row::new(vec![
            Span::raw(clock_time(change.at)),
            Span::styled(change.what, colour),
            Span::raw(change.id.clone()),
            Span::raw(change.service.clone()),
            Span::raw(change.owner.clone()),
        ])
    });
    let widths =
        [Constraint::Length(8), Constraint::Length(10), Constraint::Fill(2), Constraint::Fill(1), Constraint::Fill(1)];
    let table = Table::new(rows, widths).header(heading(["UTC", "change", "member", "service", "owner"])).block(block(
        model,
        Panel::Events,
        format!(" changes ({count}) "),
    ));
    frame.render_widget(table, area);
}

fn heading<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::BOLD))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{answers, event};
    use super::*;
    use convoke_testkit::golden;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(width: u16, height: u16, model: &mut Model, now: Instant) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, now)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content().chunks(usize::from(width));
        let line = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        rows.map(|row| line(row).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn one_picture_for_every_size() {
        let (mut model, now) = (Model::default(), Instant::now());
        golden!("golden/asking.txt", &picture(60, 12, &mut model, now));
        model.answered(now, answers(1.0));
        model.answered(now + Duration::from_secs(1), answers(5.0));
        for number in 0..30 {
            model.happened(now, 1_794_895_854_999, &event(&format!("web-{number}"), "web"));
        }
        golden!("golden/narrow.txt", &picture(72, 26, &mut model, now));
        golden!("golden/wide.txt", &picture(130, 20, &mut model, now));
        golden!("golden/tiny.txt", &picture(20, 3, &mut model, now));
        model.failed("connection refused".into());
        assert!(picture(72, 26, &mut model, now).contains("no answer: connection refused"));
        assert!(picture(72, 26, &mut model, now + OLD * 3).contains("n1"));
    }

    #[test]
    fn the_log_in_one_line() {
        let text = |status: &v1::LogStatusResponse| log(Some(status)).to_string();
        let led = v1::LogStatusResponse {
            leader: "n2".into(),
            epoch: "4@1".into(),
            voters: vec!["n1".into(), "n2".into(), "n3".into()],
            role: "follower".into(),
            available: true,
            commit: 120,
            applied: 119,
            keys: 7,
            ..Default::default()
        };
        assert_eq!(text(&led), "log: leader n2, epoch 4@1, 3 voters; follower here, commit 120, applied 119, 7 keys");
        let outside = v1::LogStatusResponse { role: "outside".into(), ..led.clone() };
        assert!(text(&outside).contains("no replica here"));
        let alone = v1::LogStatusResponse { available: false, ..led.clone() };
        assert_eq!(text(&alone), "log: no leader; voters n1, n2, n3");
        let broken = v1::LogStatusResponse { available: false, fault: "disk full".into(), ..led };
        assert_eq!(text(&broken), "log: stopped: disk full");
        assert_eq!(log(None).to_string(), "log: this node has none");
    }

    #[test]
    fn locks_leases_and_quota_in_one_line() {
        let text = |status: &v1::LogStatusResponse| coordination(Some(status)).to_string();
        let used =
            v1::LogStatusResponse { level: 2, leases: 5, lock_holders: 3, lock_waiters: 7, ..Default::default() };
        assert_eq!(text(&used), "locks: 3 held, 7 waiting; 5 leases; quota below 80 %");
        let full = v1::LogStatusResponse { quota: "the log is nearly full: keys 9 of 10".into(), ..used.clone() };
        assert_eq!(text(&full), "locks: 3 held, 7 waiting; 5 leases; the log is nearly full: keys 9 of 10");
        let failed = v1::LogStatusResponse { fault: "disk full".into(), ..used };
        assert_eq!((text(&failed).as_str(), coordination(None).to_string().as_str()), ("locks: -", "locks: -"));
    }

    #[test]
    fn no_size_is_a_reason_to_fall_over() {
        let (mut model, now) = (Model::default(), Instant::now());
        model.answered(now, answers(1.0));
        for (width, height) in [(1, 1), (1, 200), (200, 1), (40, 10), (109, 11), (110, 10), (300, 100)] {
            picture(width, height, &mut model, now);
        }
    }

    #[test]
    fn figures_are_short() {
        let shown: Vec<String> = [0.0, 0.25, 9.5, 123.4, 99_999.0, 2_500_000.0].into_iter().map(short).collect();
        assert_eq!(shown, ["0", "0.2", "9.5", "123", "100k", "2.5M"]);
    }
}
