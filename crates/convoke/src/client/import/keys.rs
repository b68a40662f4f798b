//! Copies the keys of a Consul.

use super::Copied;
use super::consul::{Consul, path_of};
use crate::args::ImportConsulArgs;
use crate::client::log::{CLOSE_TIMEOUT, SESSION_TTL, ambassador, or_explain, printable};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use convoke_cli::{CommandError, Result};
use convoke_client::log::{Compare, Kv, Op, OpResult, Options, Txn};
use convoke_proto::ErrorCode;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// A key as Consul shows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConsulKey {
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    flags: u64,
    #[serde(default)]
    session: Option<String>,
}

pub(super) async fn import(arguments: &ImportConsulArgs, consul: &mut Consul) -> Result<Copied> {
    let connect = &arguments.inspect.connect;
    let kv = ambassador(connect)?.kv_with(Options::default().timeout(connect.timeout).ttl(SESSION_TTL));
    let copied = copy(arguments, consul, &kv).await;
    // If the log session cannot be ended here, it expires.
    let _ = kv.close(CLOSE_TIMEOUT).await;
    copied
}

async fn copy(arguments: &ImportConsulArgs, consul: &mut Consul, kv: &Kv) -> Result<Copied> {
    // Names first, then one key at a time: the memory that is needed does not depend on the values.
    let names = consul.get::<Vec<String>>(&format!("/v1/kv/{}?keys", path_of(&arguments.prefix))).await?;
    let names = names.unwrap_or_default();
    let (mut copied, mut shown) = (Copied::default(), Instant::now());
    for (done, name) in names.iter().enumerate() {
        if shown.elapsed() > PROGRESS {
            shown = Instant::now();
            eprintln!("convoke: {done} of {} keys", names.len());
        }
        copy_key(arguments, consul, kv, name, &mut copied).await?;
    }
    Ok(copied)
}

async fn copy_key(
    arguments: &ImportConsulArgs,
    consul: &mut Consul,
    kv: &Kv,
    name: &str,
    copied: &mut Copied,
) -> Result {
    let shown = printable(name.as_bytes(), 200);
    let found = consul.get::<Vec<ConsulKey>>(&format!("/v1/kv/{}", path_of(name))).await?;
    // It was deleted since the names were read.
    let Some(key) = found.unwrap_or_default().into_iter().next() else { return Ok(()) };
    if key.session.is_some() {
        copied.skip(&shown, "a session of Consul holds it as a lock");
        return Ok(());
    }
    let value = STANDARD
        .decode(key.value.as_deref().unwrap_or_default())
        .map_err(|error| CommandError::failed(format!("the value of {shown} at Consul is not base64: {error}")))?;
    let connect = &arguments.inspect.connect;
    if arguments.dry_run || arguments.overwrite {
        let here = or_explain(connect, kv.get(name.to_owned()).await).await?;
        match here {
            Some(here) if here.value == value && here.flags == key.flags => {
                copied.unchanged += 1;
                return Ok(());
            }
            Some(_) if !arguments.overwrite => {
                copied.conflicts.push(shown);
                return Ok(());
            }
            _ if arguments.dry_run => {
                copied.copied += 1;
                return Ok(());
            }
            _ => {}
        }
    }
    let put = Op::put(name.to_owned(), value.clone()).flags(key.flags);
    let txn = if arguments.overwrite {
        Txn::new().then(put)
    } else {
        Txn::new().compare(Compare::missing(name.to_owned())).then(put).otherwise(Op::get(name.to_owned()))
    };
    let answer = match kv.commit(txn).await {
        Err(error) if matches!(error.code, ErrorCode::TooLarge | ErrorCode::InvalidArgument) => {
            copied.skip(&shown, error.message);
            return Ok(());
        }
        answer => or_explain(connect, answer).await?,
    };
    if answer.succeeded {
        copied.copied += 1;
        return Ok(());
    }
    let same = |result: &OpResult| matches!(result, OpResult::Read { records, .. } if records.iter().any(|here| here.value == value && here.flags == key.flags));
    if answer.results.is_ok_and(|results| results.iter().any(same)) {
        copied.unchanged += 1;
    } else {
        copied.conflicts.push(shown);
    }
    Ok(())
}
