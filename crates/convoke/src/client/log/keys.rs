//! `convoke kv`

use super::{ambassador, or_explain, txn, watch};
use crate::args::{ChangeKind, Consistency, Guard, KvArgs, KvCommand};
use convoke_cli::output::{Palette, Style, Table, counted, facts, print, print_bytes, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::{self, KeyValue, Kv, Options, Query, WatchKeys, Write, Written};
use convoke_proto::json;
use convoke_proto::{Error, ErrorCode};
use std::io::Read;
use std::time::Duration;

/// TTL of the log session of a command. It is short, because a command that dies leaves its session open.
pub(in crate::client) const SESSION_TTL: Duration = Duration::from_secs(5);
/// Time limit for ending the log session.
pub(in crate::client) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Keys requested at a time.
const PAGE: u64 = 1_000;

pub(crate) async fn kv(arguments: &KvArgs) -> Result {
    let connect = &arguments.inspect.connect;
    let kv = ambassador(connect)?.kv_with(Options::default().timeout(connect.timeout).ttl(SESSION_TTL));
    let done = execute(arguments, &kv).await;
    // A write without an answer leaves its log session open. If the session cannot be ended here, it expires.
    let _ = kv.close(CLOSE_TIMEOUT).await;
    done
}

async fn execute(arguments: &KvArgs, kv: &Kv) -> Result {
    let (connect, json) = (&arguments.inspect.connect, arguments.inspect.json);
    match &arguments.command {
        KvCommand::Get { key, raw, read, at } => {
            let page = kv.query(Query::key(key.clone()), at.revision, consistency(read.consistency)).await;
            let found = or_explain(connect, page).await?.records.into_iter().next();
            let found =
                found.ok_or_else(|| CommandError::from(Error::new(ErrorCode::NotFound, format!("no key {key:?}"))))?;
            match (raw, json) {
                (true, _) => print_bytes(&found.value),
                (false, true) => print_json(&json::KeyValue::from(found)),
                (false, false) => print(&show(&found, Palette::of_stdout())),
            }
        }
        KvCommand::Put { key, value, if_revision, lease, guard } => {
            let write = compared(Write::put(key.clone(), value_of(value.as_deref())?), *if_revision);
            let write = guarded(lease.iter().fold(write, |write, lease| write.lease(*lease)), guard);
            let written = write_key(connect, kv, write).await?;
            if json {
                print_json(&written_json(&written, false))
            } else {
                print(&format!("revision {}\n", written.revision))
            }
        }
        KvCommand::Delete { key, prefix, if_revision, guard } => {
            let write = if *prefix { Write::delete_prefix(key.clone()) } else { Write::delete(key.clone()) };
            let written = write_key(connect, kv, guarded(compared(write, *if_revision), guard)).await?;
            let (keys, revision) = (counted(written.keys, "key"), written.revision);
            if json {
                print_json(&written_json(&written, true))
            } else {
                print(&format!("deleted {keys}, revision {revision}\n"))
            }
        }
        KvCommand::List { prefix, from, until, limit, keys, count, read, at } => {
            let query = match (from, until) {
                (None, None) => Query::prefix(prefix.clone()),
                (from, until) => Query::range(from.clone().unwrap_or_default(), until.clone().map(Into::into)),
            };
            let list = List { query, revision: at.revision, consistency: consistency(read.consistency) };
            match (keys, count) {
                (_, true) => self::count(connect, kv, list, json).await,
                (true, false) => {
                    self::list(connect, kv, List { query: list.query.keys_only(), ..list }, *limit, json).await
                }
                (false, false) => self::list(connect, kv, list, *limit, json).await,
            }
        }
        KvCommand::Watch { prefix, key, until, events, from, prev, stale, command } => {
            let mut keys = match (key, until) {
                (Some(key), _) => WatchKeys::key(key.clone()),
                (None, Some(until)) => WatchKeys::range(prefix.clone(), Some(until.clone().into())),
                (None, None) => WatchKeys::prefix(prefix.clone()),
            };
            keys = match events {
                None => keys,
                Some(ChangeKind::Put) => keys.only_puts(),
                Some(ChangeKind::Delete) => keys.only_deletes(),
            };
            keys = from.iter().fold(keys, |keys, from| keys.from(*from));
            keys = if *prev { keys.previous() } else { keys };
            keys = if *stale { keys.stale() } else { keys };
            watch::watch(kv, keys, command, json).await
        }
        KvCommand::Txn { file } => txn::txn(connect, kv, file.as_deref(), json).await,
    }
}

async fn write_key(connect: &ConnectArgs, kv: &Kv, write: Write) -> Result<Written> {
    // The log session ends with the only write of the command, so only the opening and the write are committed.
    or_explain(connect, kv.write(write.last()).await).await
}

fn compared(write: Write, revision: Option<u64>) -> Write {
    match revision {
        Some(revision) => write.if_revision(revision),
        None => write,
    }
}

fn guarded(write: Write, guard: &Guard) -> Write {
    match (&guard.lock, &guard.election, guard.fence) {
        (Some(lock), _, Some(fence)) => write.if_lock(lock.clone(), fence),
        (None, Some(election), Some(fence)) => write.if_leader(election.clone(), fence),
        _ => write,
    }
}

fn consistency(consistency: Consistency) -> log::Consistency {
    match consistency {
        Consistency::Barrier => log::Consistency::Barrier,
        Consistency::Linearizable => log::Consistency::Linearizable,
        Consistency::Local => log::Consistency::Local,
    }
}

fn value_of(given: Option<&str>) -> Result<Vec<u8>> {
    if let Some(value) = given.filter(|value| *value != "-") {
        return Ok(value.as_bytes().to_vec());
    }
    let mut value = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut value);
    read.map_err(|error| CommandError::failed(format!("cannot read the value from stdin: {error}")))?;
    Ok(value)
}

/// A read of keys.
struct List {
    query: Query,
    revision: Option<u64>,
    consistency: log::Consistency,
}

async fn count(connect: &ConnectArgs, kv: &Kv, list: List, as_json: bool) -> Result {
    let page = kv.query(list.query.count_only(), list.revision, list.consistency).await;
    let page = or_explain(connect, page).await?;
    if as_json {
        let (revision, count) = (page.revision, Some(page.count));
        return print_json(&json::KeyList { revision, count, ..json::KeyList::default() });
    }
    print(&format!("{}\n", page.count))
}

async fn list(connect: &ConnectArgs, kv: &Kv, list: List, limit: u64, as_json: bool) -> Result {
    let List { mut query, revision: at, consistency } = list;
    let (mut records, mut revision, mut more) = (Vec::new(), 0, true);
    while more && (records.len() as u64) < limit {
        let wanted = (limit - records.len() as u64).min(PAGE);
        let page = or_explain(connect, kv.query(query.clone().limit(wanted), at, consistency).await).await?;
        if let Some(last) = page.records.last() {
            query = query.after(&last.key);
        }
        (revision, more) = (page.revision, page.more);
        records.extend(page.records);
    }
    if more {
        eprintln!("convoke: more keys exist: raise --limit or use a longer prefix");
    }
    if as_json {
        let keys = records.into_iter().map(json::KeyValue::from).collect();
        return print_json(&json::KeyList { keys, revision, ..json::KeyList::default() });
    }
    let mut table = Table::new(&["KEY", "VALUE", "REVISION", "CREATED", "VERSION"]);
    for record in &records {
        let plain = |text: String| (text, Style::Plain);
        table.row(vec![
            plain(printable(&record.key, 60)),
            plain(printable(&record.value, 40)),
            plain(record.mod_revision.to_string()),
            plain(record.create_revision.to_string()),
            plain(record.version.to_string()),
        ]);
    }
    print(&table.render(Palette::of_stdout()))
}

fn show(record: &KeyValue, palette: Palette) -> String {
    let mut shown = vec![
        ("Key", printable(&record.key, usize::MAX)),
        ("Value", printable(&record.value, 1_000)),
        ("Revision", format!("{} (created at {})", record.mod_revision, record.create_revision)),
        ("Version", record.version.to_string()),
    ];
    if record.lease > 0 {
        shown.push(("Lease", record.lease.to_string()));
    }
    facts(&shown, palette)
}

/// Returns text on one line. Bytes that are not text are escaped, and long text is truncated.
pub(in crate::client) fn printable(bytes: &[u8], longest: usize) -> String {
    let text: String = match std::str::from_utf8(bytes) {
        Ok(text) => text
            .chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
            .collect(),
        Err(_) => bytes.escape_ascii().to_string(),
    };
    if text.chars().count() <= longest {
        return text;
    }
    let cut: String = text.chars().take(longest).collect();
    format!("{cut}… ({} bytes)", bytes.len())
}

fn written_json(written: &Written, deleted: bool) -> json::KeyWritten {
    json::KeyWritten {
        revision: written.revision,
        deleted: deleted.then_some(written.keys),
        request: written.request,
        previous: Vec::new(),
        omitted: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_on_one_line() {
        assert_eq!(printable("zehn\n".as_bytes(), 10), "zehn\\n");
        assert_eq!(printable(b"\xff\x00a", 10), "\\xff\\x00a");
        assert_eq!(printable(b"0123456789", 4), "0123… (10 bytes)");
    }
}
