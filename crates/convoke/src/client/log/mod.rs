//! `convoke kv` and `convoke log`.

mod archive;
mod backup;
mod check;
mod keys;
mod members;
mod offline;
mod sessions;
mod status;
mod txn;
mod txn_text;
mod watch;

pub(crate) use keys::kv;
pub(super) use keys::{CLOSE_TIMEOUT, SESSION_TTL, printable};

use crate::args::{LogArgs, LogCommand, SessionsCommand};
use convoke_cli::output::{facts, print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result, addresses, call, tls, token};
use convoke_client::log::{Ambassador, Fate, FateKind, connector};
use convoke_proto::json::RequestFate;
use convoke_proto::v1::RequestId;
use convoke_proto::{Error, ErrorCode, v1};

pub(crate) async fn log(arguments: &LogArgs) -> Result {
    let (connect, json) = (arguments.connect(), arguments.inspect.json);
    match &arguments.command {
        LogCommand::Status => status::status(connect, json).await,
        LogCommand::Check { directory, cut_tail } => check::check(directory, *cut_tail, json),
        LogCommand::Backup { file, force } => backup::backup(connect, file, *force, json).await,
        LogCommand::Peek { request } => {
            let fate = ambassador(connect)?.peek(*request, Some(connect.timeout)).await;
            print_fate(*request, or_explain(connect, fate).await?, json)
        }
        LogCommand::Resolve { request } => {
            let fate = ambassador(connect)?.resolve(*request, Some(connect.timeout)).await;
            print_fate(*request, or_explain(connect, fate).await?, json)
        }
        LogCommand::Upgrade => {
            let level = or_explain(connect, ambassador(connect)?.upgrade(Some(connect.timeout)).await).await?;
            if json { print_json(&v1::UpgradeResponse { level }) } else { print(&format!("level {level}\n")) }
        }
        LogCommand::Sessions { command: None } => sessions::list(connect, json).await,
        LogCommand::Sessions { command: Some(SessionsCommand::End { session, opened_by }) } => {
            sessions::end(connect, *session, opened_by.as_deref(), json).await
        }
        LogCommand::Restore { file, offline } => offline::restore(offline, file, json).await,
        LogCommand::Recover { offline, i_give_up_all_other_nodes } => {
            offline::recover(offline, i_give_up_all_other_nodes.as_deref(), json).await
        }
        change => members::change(connect, change, json).await,
    }
}

pub(super) fn ambassador(connect: &ConnectArgs) -> Result<Ambassador> {
    Ok(Ambassador::start_with(addresses(connect)?, connector(tls(connect)?, token(connect)?))?)
}

/// Returns the answer of the log. After a timeout, it finds out whether a node or a leader was missing.
pub(super) async fn or_explain<T>(connect: &ConnectArgs, answer: Result<T, Error>) -> Result<T> {
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) if error.code == ErrorCode::Timeout && error.about().is_none() => error,
        Err(error) => return Err(error.into()),
    };
    let status = call(connect, async |node| node.log().status(v1::LogStatusRequest {}).await).await?;
    if status.available {
        return Err(error.into());
    }
    let node = status.node;
    Err(CommandError::unreachable(format!(
        "node {node} knows no leader of the log with a majority; the request was not executed: see `convoke log status`"
    )))
}

fn print_fate(request: RequestId, fate: Fate, json: bool) -> Result {
    let kind = fate.kind();
    let shown = RequestFate::new(request, fate);
    if json {
        return print_json(&shown);
    }
    let meaning = match kind {
        FateKind::Applied => "took effect once",
        FateKind::NotApplied => "decided: did not take effect and never will",
        FateKind::Never => "did not and will not take effect",
        FateKind::TooOld => "no longer known; cannot take effect any more",
        FateKind::Open | FateKind::Unspecified => "no effect so far; may take effect until it is resolved",
    };
    let mut lines = vec![("Request", request.to_string()), ("Fate", format!("{}: {meaning}", shown.fate))];
    if let Some(index) = shown.index {
        lines.push(("Index", index.to_string()));
    }
    if let Some(revision) = shown.revision {
        lines.push(("Revision", revision.to_string()));
    }
    if let Some(reason) = &shown.reason {
        lines.push(("Reason", reason.message.clone()));
    }
    print(&facts(&lines, convoke_cli::output::Palette::of_stdout()))
}
