//! Patterns in which `*` matches any run of characters, including none.

use std::fmt;

/// A pattern: anchored at both ends and case-sensitive. Every character except `*` is literal. A `*` cannot be escaped;
/// compare values that contain one with `==`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wildcard {
    pattern: Box<str>,
}

impl Wildcard {
    /// Creates a pattern.
    pub fn new(pattern: &str) -> Wildcard {
        Wildcard { pattern: pattern.into() }
    }

    /// Returns whether the pattern matches.
    ///
    /// Matches each piece between two stars at its leftmost position. A later position would only leave less text for
    /// the following pieces, so backtracking is not necessary.
    pub fn matches(&self, text: &str) -> bool {
        let Some((prefix, rest)) = self.pattern.split_once('*') else {
            return *self.pattern == *text;
        };
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut text) = text.strip_prefix(prefix).and_then(|text| text.strip_suffix(suffix)) else {
            return false;
        };
        for piece in middle.split('*') {
            let Some(start) = text.find(piece) else {
                return false;
            };
            text = &text[start + piece.len()..];
        }
        true
    }

    /// Returns whether the pattern has no star and therefore matches exactly one text.
    pub fn is_literal(&self) -> bool {
        !self.pattern.contains('*')
    }

    /// Returns the text that the pattern matches, if there is exactly one.
    pub fn literal(&self) -> Option<&str> {
        self.is_literal().then_some(&*self.pattern)
    }

    /// Returns the pattern.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }
}

impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let wildcard = Wildcard::new(pattern);
        for text in matching {
            assert!(wildcard.matches(text), "{pattern} should match {text:?}");
        }
        for text in others {
            assert!(!wildcard.matches(text), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn stars_match_any_run() {
        check("*", &["", "a", "a.b"], &[]);
        check("aws.us-east-*", &["aws.us-east-", "aws.us-east-1.a"], &["aws.us-west-1", "xaws.us-east-1"]);
        check("*.a", &[".a", "x.a", "x.a.a"], &["a", "x.ab"]);
        check("a*b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb", "abcd"]);
        check("*ab*ab*", &["abab", "xabxabx"], &["ab", "aab"]);
        check("a**b", &["ab", "axb"], &["a", "b"]);
    }

    #[test]
    fn prefix_and_suffix_do_not_overlap() {
        check("aba*aba", &["abaaba", "abaxaba"], &["aba", "ababa"]);
    }

    #[test]
    fn other_characters_are_literal_and_case_sensitive() {
        check("a.c", &["a.c"], &["abc", "A.c"]);
        check("[a-z]?+\\*", &["[a-z]?+\\", "[a-z]?+\\x"], &["a", "[a-z]?+*"]);
        check("", &[""], &["a"]);
        check("é*ü", &["éü", "éxü"], &["eü"]);
    }

    #[test]
    fn a_pattern_without_a_star_is_literal() {
        assert_eq!(Wildcard::new("orders").literal(), Some("orders"));
        assert_eq!(Wildcard::new("orders*").literal(), None);
        assert!(Wildcard::new("").is_literal());
    }

    /// A matcher with exponential backtracking would not finish.
    #[test]
    fn a_hostile_pattern_is_matched_quickly() {
        let pattern = "a*".repeat(2000) + "b";
        assert!(!Wildcard::new(&pattern).matches(&"a".repeat(4000)));
    }
}
