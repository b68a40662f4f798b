//! The code map in `docs/ARCHITECTURE.md`.

use crate::{Finding, Repository};

const MAP: &str = "docs/ARCHITECTURE.md";

/// Finds crates that the code map does not name.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let map = repository.text(MAP).unwrap_or_default();
    let crates = repository.texts().filter_map(|(path, _)| {
        let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!name.contains('/')).then_some(name)
    });
    let missing = crates.filter(|name| !map.contains(&format!("`crates/{name}/`")));
    missing.map(|name| Finding::new(MAP, 1, format!("the code map does not name `crates/{name}/`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_must_be_named() {
        let files = [("crates/core/Cargo.toml", ""), ("crates/log/Cargo.toml", ""), ("crates/log/x/Cargo.toml", "")];
        let map = |text| Repository::of(files.into_iter().chain([(MAP, text)]));
        assert_eq!(check(&map("| `crates/core/` | core |\n| `crates/log/` | log |\n")), []);
        let findings = check(&map("| `crates/core/` | core |\n| `crates/log/src/` | not the crate itself |\n"));
        assert_eq!(findings, [Finding::new(MAP, 1, "the code map does not name `crates/log/`")]);
        assert_eq!(check(&Repository::of(files)).len(), 2);
    }
}
