//! Words, texts and signs of an expression.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a keyword, a number or a value without quotes.
    Word(String),
    /// A value in quotes.
    Text(String),
    Equal,
    NotEqual,
    Open,
    Close,
    OpenBracket,
    CloseBracket,
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(found) };
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '[' => (Token::OpenBracket, 1),
            ']' => (Token::CloseBracket, 1),
            '=' if rest.starts_with("==") => (Token::Equal, 2),
            '!' if rest.starts_with("!=") => (Token::NotEqual, 2),
            '`' => {
                let end = rest[1..].find('`').ok_or_else(|| unexpected(text, rest))?;
                (Token::Text(rest[1..=end].to_owned()), end + 2)
            }
            '"' => quoted(rest).ok_or_else(|| unexpected(text, rest))?,
            c if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            }
            _ => return Err(unexpected(text, rest)),
        };
        found.push(token);
        rest = &rest[length..];
    }
}

/// A text in double quotes, with the escapes of JSON.
fn quoted(rest: &str) -> Option<(Token, usize)> {
    let mut escaped = false;
    for (position, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => {
                let text = serde_json::from_str(&rest[..=position]).ok()?;
                return Some((Token::Text(text), position + 1));
            }
            _ => {}
        }
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':')
}

fn unexpected(text: &str, rest: &str) -> String {
    format!("1:{}: no match found", text.len() - rest.len() + 1)
}
