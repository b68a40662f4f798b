//! Booleans as Go spells them.

/// Parses a boolean in one of the spellings that Go accepts.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_go_are_known() {
        for (text, value) in
            [("1", true), ("T", true), ("True", true), ("TRUE", true), ("0", false), ("f", false), ("False", false)]
        {
            assert_eq!(parse_bool(text), Some(value), "{text}");
        }
        for text in ["", "yes", "tRUE", "2"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }
}
