//! `convoke log sessions`

use super::{ambassador, or_explain};
use convoke_cli::output::{Palette, Style, Table, counted, print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::EndSessions;
use convoke_proto::v1;
use std::time::Duration;

pub(super) async fn list(connect: &ConnectArgs, json: bool) -> Result {
    let ambassador = ambassador(connect)?;
    let mut all = v1::SessionsResponse::default();
    loop {
        let after = all.sessions.last().map_or(0, |session| session.session);
        let page = or_explain(connect, ambassador.sessions(after, 0, Some(connect.timeout)).await).await?;
        let more = page.more;
        let before = std::mem::take(&mut all.sessions);
        all = v1::SessionsResponse { sessions: [before, page.sessions].concat(), ..page };
        if !more {
            break;
        }
    }
    if json { print_json(&all) } else { print(&render(&all, Palette::of_stdout())) }
}

pub(super) async fn end(connect: &ConnectArgs, session: Option<u64>, opened_by: Option<&str>, json: bool) -> Result {
    let which = match (session, opened_by) {
        (Some(session), _) => EndSessions::One(session),
        (None, Some(opener)) => EndSessions::OpenedBy(opener.to_owned()),
        (None, None) => return Err(CommandError::usage("a session id or --opened-by is required")),
    };
    let ended = or_explain(connect, ambassador(connect)?.end_sessions(&which, Some(connect.timeout)).await).await?;
    if ended == 0 {
        let message = match which {
            EndSessions::One(session) => format!("log session {session} is not open"),
            EndSessions::OpenedBy(opener) => format!("{opener} has no open log session"),
        };
        return Err(CommandError::not_found(message));
    }
    if json {
        return print_json(&v1::EndSessionsResponse { ended, more: false });
    }
    print(&format!("{} ended\n", counted(ended, "session")))
}

fn render(all: &v1::SessionsResponse, palette: Palette) -> String {
    let mut table = Table::new(&["SESSION", "OPENED BY", "NAME", "TTL", "IDLE", "REQUESTS"]);
    let seconds = |millis: u64| format!("{:.1}s", Duration::from_millis(millis).as_secs_f64());
    for session in &all.sessions {
        let style = if session.reserved { Style::Dim } else { Style::Plain };
        table.row(vec![
            (session.session.to_string(), Style::Plain),
            (session.opened_by.clone(), style),
            (if session.client.is_empty() { "-".to_owned() } else { session.client.clone() }, Style::Plain),
            (seconds(session.ttl_ms), Style::Plain),
            (seconds(session.idle_ms), Style::Plain),
            (session.decided.to_string(), Style::Plain),
        ]);
    }
    format!(
        "{}{} of {} ({} for clients, {} per client address)\n",
        table.render(palette),
        counted(all.open, "open session"),
        all.limit,
        all.client_limit,
        all.limit_per_client
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_testkit::golden;

    #[test]
    fn the_list_of_sessions_is_rendered() {
        let session = |session, opened_by: &str, reserved| v1::LogSession {
            session,
            client: if reserved { String::new() } else { "billing".into() },
            opened_by: opened_by.into(),
            reserved,
            ttl_ms: 30_000,
            idle_ms: 1_250,
            decided: 17,
        };
        let all = v1::SessionsResponse {
            sessions: vec![session(5, "n1", true), session(120, "10.0.0.7", false)],
            more: false,
            open: 2,
            client_limit: 9_488,
            limit: 10_000,
            limit_per_client: 1_000,
        };
        golden!("golden/log_sessions.txt", &render(&all, Palette::PLAIN));
    }
}
