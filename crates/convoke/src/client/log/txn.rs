//! `convoke kv txn`

use super::keys::printable;
use super::{or_explain, txn_text};
use convoke_cli::output::{counted, print, print_json};
use convoke_cli::{CommandError, ConnectArgs, Result};
use convoke_client::log::{Kv, OpResult, Txn, TxnAnswer};
use convoke_proto::{json, v1};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Largest input: the limit of a message.
const INPUT_BYTES_MAX: u64 = 2 * convoke_proto::MESSAGE_BYTES_MAX as u64;

pub(super) async fn txn(connect: &ConnectArgs, kv: &Kv, file: Option<&Path>, as_json: bool) -> Result {
    let txn: v1::Txn = parse(&input(file)?)?.try_into()?;
    let answer = or_explain(connect, kv.commit(Txn::from(txn).last()).await).await?;
    let (succeeded, revision) = (answer.succeeded, answer.revision);
    if as_json {
        print_json(&json::TxnAnswer::from(answer))?;
    } else {
        print(&show(&answer))?;
    }
    if succeeded {
        return Ok(());
    }
    let message = format!("a compare did not hold at revision {revision}; the else branch was executed");
    Err(CommandError::rejected(message))
}

fn input(file: Option<&Path>) -> Result<String> {
    let (name, mut source): (String, Box<dyn Read>) = match file.filter(|file| *file != Path::new("-")) {
        Some(path) => {
            let opened = std::fs::File::open(path);
            let name = path.display().to_string();
            (
                name,
                Box::new(
                    opened.map_err(|error| CommandError::usage(format!("cannot open {}: {error}", path.display())))?,
                ),
            )
        }
        None => ("stdin".to_owned(), Box::new(std::io::stdin().lock())),
    };
    let mut text = String::new();
    let read = source.by_ref().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| CommandError::usage(format!("cannot read the transaction from {name}: {error}")))?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(CommandError::usage(format!("the transaction in {name} exceeds {INPUT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Parses JSON if the input starts with a brace, otherwise the text form.
fn parse(text: &str) -> Result<json::Txn> {
    if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| CommandError::usage(format!("invalid transaction: {error}")))
    } else {
        txn_text::parse(text).map_err(|error| CommandError::usage(error.to_string()))
    }
}

fn show(answer: &TxnAnswer) -> String {
    let branch = if answer.succeeded { "then" } else { "else" };
    let mut out = format!("{branch}, revision {}\n", answer.revision);
    let results = match &answer.results {
        Ok(results) => results,
        Err(error) => {
            let _ = writeln!(out, "{}", error.message);
            return out;
        }
    };
    for (at, result) in results.iter().enumerate() {
        let (line, records) = match result {
            OpResult::Put { previous } => ("put".to_owned(), previous.as_slice()),
            OpResult::Delete { keys, previous } => (format!("deleted {}", counted(*keys, "key")), previous.as_slice()),
            OpResult::Read { records, count, more } => {
                let more = if *more { ", more exist" } else { "" };
                (format!("{}{more}", counted(*count, "key")), records.as_slice())
            }
        };
        let _ = writeln!(out, "{}: {line}", at + 1);
        for record in records {
            let (key, value) = (printable(&record.key, 60), printable(&record.value, 1_000));
            let _ = writeln!(out, "   {key} = {value} (revision {})", record.mod_revision);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_client::log::KeyValue;

    #[test]
    fn results_are_shown_in_order() {
        let record = KeyValue { key: "a".into(), value: "1".into(), mod_revision: 3, ..KeyValue::default() };
        let results = vec![
            OpResult::Put { previous: Some(record.clone()) },
            OpResult::Delete { keys: 2, previous: Vec::new() },
            OpResult::Read { records: vec![record], count: 1, more: true },
        ];
        let answer = TxnAnswer { succeeded: true, revision: 7, results: Ok(results), request: None, abandoned: None };
        let expected = "then, revision 7\n1: put\n   a = 1 (revision 3)\n2: deleted 2 keys\n3: 1 key, more exist\n   a = 1 (revision 3)\n";
        assert_eq!(show(&answer), expected);
    }
}
