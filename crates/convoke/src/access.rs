//! `convoke token` and `convoke context`. No secret is an argument or is printed: tokens and keys are in files.

use crate::args::{ContextCommand, IssueArgs, RevokeArgs, TokenCommand, VerifyArgs};
use convoke_access::{Authority, Claims, Credentials, KeySet, NewToken, SigningKey, TokenText, inspect, issue};
use convoke_base::date_time;
use convoke_cli::output::{Palette, Style, Table, facts, print, print_json, unix_ms};
use convoke_cli::{CommandError, Context, Contexts, Result, contexts_file, write_private};
use convoke_proto::v1;
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(crate) fn token(command: &TokenCommand) -> Result {
    match command {
        TokenCommand::Keygen { directory } => keygen(directory),
        TokenCommand::Issue(arguments) => issue_token(arguments),
        TokenCommand::Inspect { file, json } => {
            let (header, claims) =
                inspect(&read_token(file)?).map_err(|error| CommandError::usage(error.to_string()))?;
            show(&Shown { key: header.kid, algorithm: header.alg, verified: false, claims }, *json)
        }
        TokenCommand::Verify(arguments) => verify(arguments),
        TokenCommand::Revoke(arguments) => convoke_cli::block_on(revoke(arguments)),
        TokenCommand::Can(arguments) => crate::grants::can(arguments),
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| CommandError::failed(format!("the operating system returned no random numbers: {error}")))?;
    Ok(bytes)
}

fn cannot(what: &str, path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot {what} {}: {error}", path.display()))
}

fn keygen(directory: &Path) -> Result {
    let (private, public) = (directory.join("signing.key"), directory.join("signing.pub"));
    if private.exists() {
        let message = format!("{} exists: use another directory to create a second key", private.display());
        return Err(CommandError::rejected(message));
    }
    let key = SigningKey::from_seed(random()?);
    write_private(&private, key.to_pem().as_bytes()).map_err(|error| cannot("write", &private, &error))?;
    std::fs::write(&public, key.public_pem()).map_err(|error| cannot("write", &public, &error))?;
    print(&format!(
        "key {}\n{}: keep it secret, and off the nodes\n{}: copy it to the key directory of every node (auth.keys)\n",
        key.key_id(),
        private.display(),
        public.display()
    ))
}

#[derive(Serialize)]
struct Issued<'a> {
    file: &'a Path,
    #[serde(flatten)]
    claims: Claims,
}

fn issue_token(arguments: &IssueArgs) -> Result {
    let IssueArgs { key, subject, grants, ttl, cluster, out, json } = arguments;
    let text = std::fs::read_to_string(key).map_err(|error| cannot("read", key, &error))?;
    let key = SigningKey::from_pem(&text).map_err(|error| cannot("use", key, &error))?;
    let new = NewToken {
        subject,
        audience: cluster,
        grants,
        issued_at: unix_ms() / 1_000,
        ttl: ttl.as_secs(),
        id: random()?,
    };
    let (token, claims) = issue(&key, &new).map_err(|error| CommandError::usage(error.to_string()))?;
    write_private(out, format!("{}\n", token.secret()).as_bytes()).map_err(|error| cannot("write", out, &error))?;
    if *json {
        return print_json(&Issued { file: out, claims });
    }
    let expires = date_time(claims.exp.saturating_mul(1_000));
    print(&format!("token {} of {subject}, valid until {expires}, written to {}\n", claims.jti, out.display()))
}

pub(crate) fn read_token(file: &Path) -> Result<TokenText> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(|error| cannot("read", file, &error))?;
    } else {
        text = std::fs::read_to_string(file).map_err(|error| cannot("read", file, &error))?;
    }
    Ok(TokenText::new(&text))
}

#[derive(Serialize)]
struct Shown {
    key: String,
    algorithm: String,
    verified: bool,
    #[serde(flatten)]
    claims: Claims,
}

fn show(shown: &Shown, json: bool) -> Result {
    if json {
        return print_json(shown);
    }
    let Claims { iss, sub, aud, iat, exp, jti, grants, .. } = &shown.claims;
    let time = |seconds: u64| date_time(seconds.saturating_mul(1_000));
    let lines = [
        ("subject", sub.clone()),
        ("cluster", aud.join(", ")),
        ("issuer", iss.clone()),
        ("issued", time(*iat)),
        ("expires", time(*exp)),
        ("id", jti.clone()),
        ("key", format!("{} ({})", shown.key, shown.algorithm)),
        ("grants", if grants.is_empty() { "none".to_owned() } else { grants.join(", ") }),
        ("verified", if shown.verified { "yes" } else { "no" }.to_owned()),
    ];
    print(&facts(&lines, Palette::of_stdout()))
}

fn verify(arguments: &VerifyArgs) -> Result {
    let VerifyArgs { file, keys, cluster, json } = arguments;
    let token = read_token(file)?;
    let mut texts = Vec::new();
    let entries = std::fs::read_dir(keys).map_err(|error| cannot("read", keys, &error))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "pub") {
            texts.push(std::fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?);
        }
    }
    let keys = KeySet::from_pems(texts.iter().map(String::as_str)).map_err(|error| cannot("use", keys, &error))?;
    let shown = Credentials { token: Some(token.secret()), certificate: None };
    Authority::new(cluster, keys)
        .authenticate(shown, unix_ms() / 1_000)
        .map_err(|error| CommandError::rejected(error.to_string()))?;
    let (header, claims) = inspect(&token).map_err(|error| CommandError::usage(error.to_string()))?;
    show(&Shown { key: header.kid, algorithm: header.alg, verified: true, claims }, *json)
}

async fn revoke(arguments: &RevokeArgs) -> Result {
    use v1::revoke_request::What;
    let RevokeArgs { id, principal, inspect } = arguments;
    let what = id.clone().map(What::Token).or_else(|| principal.clone().map(What::Principal));
    let request = v1::RevokeRequest { what, issued_until: 0 };
    let answer = convoke_cli::call(&inspect.connect, async |node| node.admin().revoke(request.clone()).await).await?;
    if inspect.json {
        return print_json(&serde_json::json!({ "added": answer.added }));
    }
    print(if answer.added { "revoked\n" } else { "revoked before\n" })
}

pub(crate) fn context(command: &ContextCommand) -> Result {
    let file = contexts_file()
        .ok_or_else(|| CommandError::usage("there is no home directory: set CONVOKE_CONTEXTS to a file"))?;
    let mut contexts = Contexts::read(&file)?;
    match command {
        ContextCommand::Add { name, addr, token_file, ca, cert, key } => {
            let absolute = |path: &Option<PathBuf>| match path {
                Some(path) => std::path::absolute(path).map(Some).map_err(|error| cannot("find", path, &error)),
                None => Ok(None),
            };
            let context = Context {
                addr: addr.clone(),
                token_file: absolute(token_file)?,
                ca: absolute(ca)?,
                cert: absolute(cert)?,
                key: absolute(key)?,
            };
            contexts.add(name, context)?;
            contexts.write(&file)
        }
        ContextCommand::Use { name } => {
            contexts.choose(name)?;
            contexts.write(&file)
        }
        ContextCommand::List { json: true } => print_json(&contexts),
        ContextCommand::List { json: false } => {
            let mut table = Table::new(&["CURRENT", "NAME", "ADDRESSES", "TOKEN FILE"]);
            for (name, context) in &contexts.contexts {
                let current = if *name == contexts.current { "*" } else { "" };
                let token = context.token_file.as_ref().map_or_else(String::new, |path| path.display().to_string());
                let cells = [current.to_owned(), name.clone(), context.addr.join(","), token];
                table.row(cells.into_iter().map(|cell| (cell, Style::Plain)).collect());
            }
            print(&table.render(Palette::of_stdout()))
        }
    }
}
