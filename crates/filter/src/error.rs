//! The parse error of a filter.

/// The error of parsing a filter. Displays as one sentence with the position and the expected input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid filter at {}: {message}", self.position())]
pub struct FilterError {
    pub message: String,
    /// Byte offset of the error in `text`.
    pub offset: usize,
    /// The filter text, truncated at the limit if it was too long.
    pub text: String,
}

impl FilterError {
    /// Returns the line of the error, counted from 1.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// Returns the column of the error in characters, counted from 1.
    pub fn column(&self) -> usize {
        self.line_before().chars().count() + 1
    }

    /// Returns the source line with a caret below the error.
    pub fn pointer(&self) -> String {
        let after = self.text.get(self.offset..).unwrap_or_default();
        let line_after = after.split('\n').next().unwrap_or_default();
        // Control characters, including tabs, would misplace the caret or affect the terminal.
        let line: String = self
            .line_before()
            .chars()
            .chain(line_after.chars())
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        format!("{line}\n{}^", " ".repeat(self.column() - 1))
    }

    pub(super) fn new(text: &str, offset: usize, message: impl Into<String>) -> FilterError {
        FilterError { message: message.into(), offset, text: text.to_owned() }
    }

    fn position(&self) -> String {
        match self.line() {
            1 => format!("column {}", self.column()),
            line => format!("line {line}, column {}", self.column()),
        }
    }

    fn before(&self) -> &str {
        self.text.get(..self.offset).unwrap_or(&self.text)
    }

    fn line_before(&self) -> &str {
        self.before().rsplit('\n').next().unwrap_or_default()
    }
}

/// Quotes user input for a message: in backquotes, without control characters, truncated when long.
pub(super) fn quote(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let shown: String = text.chars().take(CHARACTERS_MAX).flat_map(shown).collect();
    let rest = if text.chars().nth(CHARACTERS_MAX).is_some() { "…" } else { "" };
    format!("`{shown}{rest}`")
}

/// Escapes invisible characters. Quotes and backslashes stay unchanged.
fn shown(character: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = match character {
        '"' | '\'' | '\\' => (Some(character), None),
        _ => (None, Some(character.escape_debug())),
    };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
