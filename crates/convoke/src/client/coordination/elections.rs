//! `convoke elect`

use super::super::log::{or_explain, printable};
use super::hold::{Held, Term, hold, hold_until_signal};
use super::locks::place;
use super::{clock, with_handle};
use crate::args::{ElectArgs, ElectCommand, ElectRun};
use convoke_cli::output::{Palette, Style, Table, ago, counted, facts, print, print_json, stdout_closed, unix_ms};
use convoke_cli::{CommandError, ConnectArgs, Result, Signals};
use convoke_client::log::{Acquire, Consistency, Elections, Kv, LeaderChange};
use convoke_proto::json;
use serde_json::json;

/// Returns the exit code.
pub(crate) async fn elect(arguments: &ElectArgs) -> Result<u8> {
    let (connect, json) = (&arguments.inspect.connect, arguments.inspect.json);
    match &arguments.command {
        None => run(connect, &arguments.run, json).await,
        Some(command) => with_handle(connect, async |kv| execute(command, kv, connect, json).await).await.map(|()| 0),
    }
}

/// Campaigns, and runs CMD while this candidate leads.
async fn run(connect: &ConnectArgs, run: &ElectRun, json: bool) -> Result<u8> {
    let name = run.name.clone().unwrap_or_default();
    let candidacy = Acquire::new(name.clone()).value(run.value.clone());
    let candidacy = run.wait.into_iter().fold(candidacy, Acquire::wait);
    let campaign = async |_, elections: Elections| Ok(Held::Leadership(elections.campaign_with(candidacy).await?));
    let (term, what) = (Term::new(&run.lease, run.grace), format!("election {name:?}"));
    if run.cmd.is_empty() {
        return hold_until_signal(connect, &term, &what, json, campaign).await;
    }
    hold(connect, &term, &what, &run.cmd, campaign).await.map_err(CommandError::of_wrapper)
}

async fn execute(command: &ElectCommand, kv: &Kv, connect: &ConnectArgs, json: bool) -> Result {
    let elections = kv.elections();
    match command {
        ElectCommand::List => {
            let mut all: Vec<json::Election> = Vec::new();
            let mut after = Vec::new();
            loop {
                let page =
                    or_explain(connect, elections.list(after.clone(), 0, Consistency::Linearizable).await).await?;
                after = page.locks.last().map_or(after, |election| election.name.to_vec());
                let clock = clock(page.log_time_us);
                all.extend(page.locks.into_iter().map(|election| json::Election::new(election, clock)));
                if !page.more {
                    break;
                }
            }
            if json {
                return print_json(&json::ElectionList { elections: all, next_cursor: None });
            }
            print(&table(&all, unix_ms(), Palette::of_stdout()))
        }
        ElectCommand::Show { name } => {
            let page = or_explain(connect, elections.show_page(name.clone(), Consistency::Linearizable).await).await?;
            let clock = clock(page.log_time_us);
            let found = page.locks.into_iter().next().map(|election| json::Election::new(election, clock));
            let election = found.unwrap_or_else(|| json::Election::empty(name));
            if json { print_json(&election) } else { print(&show(&election, unix_ms(), Palette::of_stdout())) }
        }
        ElectCommand::Watch { name } => {
            let mut signals = Signals::listen()?;
            tokio::select! {
                shown = follow(&elections, name, json) => shown,
                () = stdout_closed() => Ok(()),
                _ = signals.next() => Ok(()),
            }
        }
        ElectCommand::Resign { name, fence } => {
            or_explain(connect, elections.resign(name.clone(), *fence).await).await?;
            if json {
                return print_json(&json!({ "election": name, "resigned": fence }));
            }
            print(&format!("the term with fence {fence} of election {name:?} has ended\n"))
        }
    }
}

async fn follow(elections: &Elections, name: &str, json: bool) -> Result {
    let mut changes = elections.observe(name.to_owned());
    while let Some(change) = changes.next().await {
        let change = change?;
        if json { print_json(&as_json(&change))? } else { print(&line(&change, Palette::of_stdout()))? }
    }
    Err(CommandError::failed("the watch ended"))
}

fn as_json(change: &LeaderChange) -> json::LeaderChange {
    let leader = change.leader.as_ref();
    json::LeaderChange {
        revision: change.revision,
        leader: leader.map(|leader| json::ElectedLeader::new(leader.fence, leader.lease, &leader.value)),
        reset: change.reset,
    }
}

fn line(change: &LeaderChange, palette: Palette) -> String {
    let (word, style, detail) = match &change.leader {
        Some(leader) => {
            let detail = format!("fence {}  {}", leader.fence, printable(&leader.value, 200));
            ("leader", Style::Good, detail)
        }
        None => ("none", Style::Bad, String::new()),
    };
    format!("{:>8}  {}  {detail}", change.revision, palette.paint(style, &format!("{word:<6}"))).trim_end().to_owned()
        + "\n"
}

fn table(elections: &[json::Election], now: u64, palette: Palette) -> String {
    let mut table = Table::new(&["ELECTION", "LEADER", "FENCE", "LEASE", "MEMBER", "SINCE", "CANDIDATES"]);
    for election in elections {
        let leader = election.leader.as_ref();
        let text = |of: fn(&json::LockHolder) -> String| leader.map(of).unwrap_or_default();
        table.row(vec![
            (election.election.clone(), Style::Plain),
            (text(|leader| printable(leader.value.as_bytes(), 40)), Style::Plain),
            (text(|leader| leader.fence.unwrap_or_default().to_string()), Style::Plain),
            (text(|leader| leader.lease.clone()), Style::Plain),
            (text(|leader| leader.member.clone().unwrap_or_default()), Style::Plain),
            (
                leader.map(|leader| format!("{} ago", ago(now.saturating_sub(leader.since)))).unwrap_or_default(),
                Style::Dim,
            ),
            (election.candidates.to_string(), Style::Plain),
        ]);
    }
    format!("{}{}\n", table.render(palette), counted(elections.len() as u64, "election"))
}

fn show(election: &json::Election, now: u64, palette: Palette) -> String {
    let leader = election.leader.as_ref().map_or_else(|| "none".to_owned(), |leader| place(leader, now));
    let mut lines = vec![("Election", election.election.clone()), ("Leader", leader)];
    lines.push(("Candidates", election.candidates.to_string()));
    lines.extend(election.queue.iter().map(|candidate| ("Candidate", place(candidate, now))));
    facts(&lines, palette)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_client::log::Leader;
    use convoke_testkit::golden;

    #[test]
    fn elections_are_listed_shown_and_watched() {
        let leader = json::LockHolder {
            fence: Some(42),
            lease: "21".into(),
            member: Some("orders-1".into()),
            value: "10.0.0.1:80".into(),
            since: 1_000_000,
            ..json::LockHolder::default()
        };
        let candidate = json::LockHolder { lease: "34".into(), since: 1_001_000, ..json::LockHolder::default() };
        let election =
            json::Election { election: "orders".into(), leader: Some(leader), candidates: 1, queue: vec![candidate] };
        let all = [election, json::Election::empty("idle")];
        let mut text = table(&all, 1_003_000, Palette::PLAIN);
        for election in &all {
            text += "\n";
            text += &show(election, 1_003_000, Palette::PLAIN);
        }
        text += "\n";
        let leader = Some(Leader { fence: 42, value: "10.0.0.1:80".into(), lease: 21 });
        text += &line(&LeaderChange { leader, revision: 42, reset: true }, Palette::PLAIN);
        text += &line(&LeaderChange { leader: None, revision: 57, reset: false }, Palette::PLAIN);
        golden!("golden/elections.txt", &text);
    }
}
