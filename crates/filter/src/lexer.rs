//! Splits a filter into tokens, one at a time, so that the first error in the text is the one reported.

use super::error::{FilterError, quote};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind<'a>,
    /// Byte offset of the first character.
    pub(super) offset: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'a> {
    /// A field, a keyword or a bare value; `meta.KEY` is one word.
    Word(&'a str),
    /// A string with resolved escapes.
    Text(String),
    Equal,
    NotEqual,
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    Comma,
    End,
}

impl TokenKind<'_> {
    /// Returns the name of the token in error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            TokenKind::Word(word) => quote(word),
            TokenKind::Text(text) => format!("string {}", quote(&format!("\"{text}\""))),
            TokenKind::Equal => quote("=="),
            TokenKind::NotEqual => quote("!="),
            TokenKind::Open => quote("("),
            TokenKind::Close => quote(")"),
            TokenKind::OpenBracket => quote("["),
            TokenKind::CloseBracket => quote("]"),
            TokenKind::Comma => quote(","),
            TokenKind::End => "the end".to_owned(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, offset: 0 }
    }

    pub(super) fn token(&mut self) -> Result<Token<'a>, FilterError> {
        self.skip_while(char::is_whitespace);
        let offset = self.offset;
        let kind = match self.peek() {
            None => TokenKind::End,
            Some(quotation @ ('"' | '\'')) => TokenKind::Text(self.string(quotation)?),
            Some(character) if is_word_character(character) => {
                self.skip_while(is_word_character);
                TokenKind::Word(&self.text[offset..self.offset])
            }
            Some(character) => self.symbol(character)?,
        };
        Ok(Token { kind, offset })
    }

    fn symbol(&mut self, character: char) -> Result<TokenKind<'a>, FilterError> {
        let kind = match character {
            '(' => TokenKind::Open,
            ')' => TokenKind::Close,
            '[' => TokenKind::OpenBracket,
            ']' => TokenKind::CloseBracket,
            ',' => TokenKind::Comma,
            '=' if self.rest().starts_with("==") => TokenKind::Equal,
            '!' if self.rest().starts_with("!=") => TokenKind::NotEqual,
            _ => return Err(self.unexpected_character(character)),
        };
        self.offset += if matches!(kind, TokenKind::Equal | TokenKind::NotEqual) { 2 } else { 1 };
        Ok(kind)
    }

    /// Creates the error for an unexpected character. For operators of other languages, it names the equivalent.
    fn unexpected_character(&self, character: char) -> FilterError {
        let hint = match character {
            '=' | '~' => ", expected an operator such as `==` or `matches`",
            '!' => ", expected `not` or `!=`",
            '&' => ", expected `and`",
            '|' => ", expected `or`",
            '*' => ", expected a pattern in quotes",
            '<' | '>' => ", order comparisons are not supported",
            _ => "",
        };
        self.error(self.offset, format!("unexpected character {}{hint}", quote(character.encode_utf8(&mut [0; 4]))))
    }

    fn string(&mut self, quotation: char) -> Result<String, FilterError> {
        let start = self.offset;
        self.offset += quotation.len_utf8();
        let mut value = String::new();
        loop {
            match self.peek() {
                None => {
                    let message = format!("unterminated string, expected a closing {}", quote(&quotation.to_string()));
                    return Err(self.error(start, message));
                }
                Some('\\') => value.push(self.escape()?),
                Some(character) => {
                    self.offset += character.len_utf8();
                    if character == quotation {
                        return Ok(value);
                    }
                    value.push(character);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, FilterError> {
        let start = self.offset;
        self.offset += 1;
        let Some(character) = self.peek() else {
            return Err(self.error(start, "unterminated string, expected an escaped character after `\\`"));
        };
        self.offset += character.len_utf8();
        match character {
            '"' | '\'' | '\\' => Ok(character),
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'u' => self.code_point().ok_or_else(|| {
                self.error(start, "invalid escape, expected a Unicode character in hexadecimal such as `\\u{e9}`")
            }),
            _ => {
                let found = quote(&self.text[start..self.offset]);
                let message =
                    format!("unknown escape {found}, expected one of `\\\"` `\\'` `\\\\` `\\n` `\\t` `\\u{{…}}`");
                Err(self.error(start, message))
            }
        }
    }

    /// Reads the rest of an escape after its `u`.
    fn code_point(&mut self) -> Option<char> {
        const DIGITS_MAX: usize = 6;
        let (digits, _) = self.rest().strip_prefix('{')?.split_once('}')?;
        // Checked here because `from_str_radix` also accepts a sign.
        if digits.len() > DIGITS_MAX || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
        self.offset += digits.len() + 2;
        Some(character)
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    fn skip_while(&mut self, condition: fn(char) -> bool) {
        self.offset = self.text.len() - self.rest().trim_start_matches(condition).len();
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> FilterError {
        FilterError::new(self.text, offset, message)
    }
}

/// Returns whether a metadata key can follow `meta.` without quotes. Other keys need `meta["…"]`.
pub(super) fn is_bare_key(key: &str) -> bool {
    key.chars().all(is_word_character) && key.split('.').all(|part| !part.is_empty())
}

/// Writes a string in the syntax that the lexer reads.
pub(super) fn write_string(out: &mut impl std::fmt::Write, value: &str) -> std::fmt::Result {
    out.write_char('"')?;
    for character in value.chars() {
        match character {
            '"' | '\\' => write!(out, "\\{character}")?,
            '\n' => out.write_str("\\n")?,
            '\t' => out.write_str("\\t")?,
            _ if character.is_control() => write!(out, "\\u{{{:x}}}", u32::from(character))?,
            _ => out.write_char(character)?,
        }
    }
    out.write_char('"')
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}
