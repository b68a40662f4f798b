//! Named contexts: addresses and credentials under a name, so that commands need no flags.
//!
//! The file names credential files and holds no secret, but it decides where tokens are sent. Only its owner may read and
//! write it.

use crate::{CommandError, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const CONTEXTS_MAX: usize = 256;

/// The contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Contexts {
    /// Name of the context in use; empty if there is none.
    pub current: String,
    pub contexts: BTreeMap<String, Context>,
}

/// How to reach a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Context {
    pub addr: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// Returns the file of the contexts: `CONVOKE_CONTEXTS`, or `convoke/contexts.json` in the configuration directory of the
/// user. `None` if there is no such directory.
pub fn contexts_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = variable("CONVOKE_CONTEXTS") {
        return Some(file);
    }
    let directory = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("convoke").join("contexts.json"))
}

/// Returns the context in use.
pub fn current_context() -> Result<Option<Context>> {
    let Some(file) = contexts_file() else { return Ok(None) };
    let mut contexts = Contexts::read(&file)?;
    Ok(contexts.contexts.remove(&contexts.current))
}

impl Contexts {
    /// Reads the contexts. A file that does not exist has none.
    pub fn read(file: &Path) -> Result<Contexts> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(unusable(file, &error)),
        };
        serde_json::from_str(&text).map_err(|error| unusable(file, &error))
    }

    /// Adds or replaces a context. The first one becomes the current one.
    pub fn add(&mut self, name: &str, context: Context) -> Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let message = format!("{name:?} is not a context name: use up to 64 letters, digits, `-`, `_` and `.`");
            return Err(CommandError::usage(message));
        }
        if self.contexts.len() >= CONTEXTS_MAX && !self.contexts.contains_key(name) {
            return Err(CommandError::failed(format!("there are already {CONTEXTS_MAX} contexts: remove one")));
        }
        if self.contexts.is_empty() {
            name.clone_into(&mut self.current);
        }
        self.contexts.insert(name.to_owned(), context);
        Ok(())
    }

    /// Makes a context the current one.
    pub fn choose(&mut self, name: &str) -> Result {
        if !self.contexts.contains_key(name) {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let message = format!("no context {name:?}; contexts: {}", known.join(", "));
            return Err(CommandError::not_found(message));
        }
        name.clone_into(&mut self.current);
        Ok(())
    }

    /// Replaces the file. Only its owner may read it.
    pub fn write(&self, file: &Path) -> Result {
        let text = serde_json::to_string_pretty(self).map_err(|error| unusable(file, &error))?;
        write_private(file, format!("{text}\n").as_bytes()).map_err(|error| unusable(file, &error))
    }
}

/// Writes a file that only its owner may read, under its name only when it is complete. Missing directories are created.
pub fn write_private(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside = directory.join(name);
    // A file or a link of another user at this place would pass its mode or its target on.
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&aside).and_then(|mut open| {
        open.write_all(content)?;
        open.sync_all()
    });
    let written = written.and_then(|()| std::fs::rename(&aside, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    written
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> CommandError {
    CommandError::failed(format!("cannot use the contexts in {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn contexts_survive_their_file_and_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a").join("contexts.json");
        let mut contexts = Contexts::read(&file).unwrap();
        assert_eq!(contexts, Contexts::default());
        let context = Context { addr: vec!["n1:7700".into()], token_file: Some("t".into()), ..Context::default() };
        contexts.add("prod", context.clone()).unwrap();
        contexts.add("test", Context::default()).unwrap();
        assert_eq!(contexts.current, "prod");
        contexts.choose("test").unwrap();
        assert!(contexts.choose("other").unwrap_err().message.contains("prod, test"));
        assert!(contexts.add("a b", context).is_err());
        contexts.write(&file).unwrap();
        assert_eq!(Contexts::read(&file).unwrap(), contexts);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(), 0o600);
            // A file that everybody can read, at the place of the new one, does not pass its mode on.
            std::fs::write(file.with_file_name(format!("contexts.json.{}.new", std::process::id())), "").unwrap();
            contexts.write(&file).unwrap();
            assert_eq!(mode(), 0o600);
        }
        std::fs::write(&file, "{").unwrap();
        assert!(Contexts::read(&file).unwrap_err().message.contains("contexts.json"));
    }
}
