//! Rust code in the documentation.
//!
//! Every page with a `rust` block is compiled as a doctest of this crate.
//! Blocks that need a running cluster are marked `no_run`: they are compiled, not executed.

use crate::{Finding, Repository, markdown};

/// Names the pages, and makes each of them the documentation of a type that exists for doctests only.
macro_rules! pages {
    ($($name:ident: $path:literal,)+) => {
        /// The pages whose snippets are compiled.
        pub const PAGES: &[&str] = &[$($path),+];
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../", $path))]
            #[derive(Debug)]
            pub struct $name;
        )+
    };
}

pages! {
    ElectALeader: "docs/guides/elect-a-leader.md",
    EmbedANode: "docs/guides/embed-a-node.md",
    Log: "docs/log.md",
    ReloadConfiguration: "docs/guides/reload-configuration.md",
    Sdk: "docs/sdk.md",
}

/// Finds Rust blocks that no doctest compiles, and blocks that rustdoc would take for Rust.
pub fn check(repository: &Repository, compiled: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repository.pages() {
        let is_compiled = compiled.contains(&path);
        for block in markdown::parse(source).blocks {
            let words: Vec<&str> = block.info.iter().flat_map(|info| info.split([',', ' '])).collect();
            let is_rust = words.first() == Some(&"rust");
            let problem = if is_rust && !is_compiled {
                "Rust code that is not compiled: add the page to crates/docs-check/src/snippets.rs"
            } else if is_rust && words.contains(&"ignore") {
                "Rust code that is not compiled: use no_run instead of ignore"
            } else if is_compiled && words.first().is_none_or(|language| language.is_empty()) {
                "a code block without a language is compiled as Rust: name its language"
            } else {
                continue;
            };
            findings.push(Finding::new(path, block.line, problem));
        }
    }
    let missing = compiled.iter().filter(|page| !repository.is_file(page));
    findings.extend(missing.map(|page| Finding::new(page, 1, "the page does not exist")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, compiled: &[&str]) -> Vec<usize> {
        check(&Repository::of([("docs/a.md", text)]), compiled).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn compiled_pages_and_pages_without_rust_pass() {
        assert!(lines("```rust,no_run\nf();\n```\n\n```sh\nls\n```\n", &["docs/a.md"]).is_empty());
        assert!(lines("```sh\nls\n```\n\n```\nplain\n```\n", &[]).is_empty());
    }

    #[test]
    fn rust_that_is_not_compiled_is_found() {
        assert_eq!(lines("text\n\n```rust\nf();\n```\n", &[]), [3]);
        assert_eq!(lines("```rust,ignore\nf();\n```\n", &["docs/a.md"]), [1]);
    }

    #[test]
    fn blocks_that_rustdoc_takes_for_rust_are_found() {
        assert_eq!(lines("```\nplain\n```\n\n    indented\n", &["docs/a.md"]), [1, 5]);
    }

    #[test]
    fn pages_that_do_not_exist_are_found() {
        assert_eq!(lines("", &["docs/b.md"]), [1]);
    }
}
