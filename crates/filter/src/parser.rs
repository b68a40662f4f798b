//! Recursive descent parser of filters. Only parentheses recurse, and their depth is limited.
//!
//! This module parses the operators between terms. [`super::term`] parses the terms themselves.

use super::error::FilterError;
use super::expression::Expression;
use super::lexer::{Lexer, Token, TokenKind};
use super::{NESTING_MAX, TERMS_MAX, TEXT_BYTES_MAX};

/// Parses a filter. Returns `None` for blank text.
pub(super) fn parse(text: &str) -> Result<Option<Expression>, FilterError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(too_long(text));
    }
    let mut lexer = Lexer::new(text);
    let current = lexer.token()?;
    if current.kind == TokenKind::End {
        return Ok(None);
    }
    let mut parser = Parser { text, lexer, current, depth: 0, terms: 0 };
    let expression = parser.disjunction(false)?;
    match parser.current.kind {
        TokenKind::End => Ok(Some(expression)),
        TokenKind::Close => Err(parser.error_here("unexpected `)` without a matching `(`")),
        _ => Err(parser.error_here(format!(
            "unexpected {} after a complete filter, expected `and`, `or` or the end",
            parser.current.kind.describe()
        ))),
    }
}

#[derive(Debug)]
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    lexer: Lexer<'a>,
    /// First token that is not consumed yet.
    pub(super) current: Token<'a>,
    /// Number of open parentheses.
    depth: usize,
    /// Number of terms so far.
    terms: usize,
}

impl Parser<'_> {
    /// Parses terms joined by `or`. If `negated`, returns the opposite: by De Morgan's laws, the opposites joined by
    /// `and`.
    fn disjunction(&mut self, negated: bool) -> Result<Expression, FilterError> {
        let mut items = vec![self.conjunction(negated)?];
        while self.take_word("or")? {
            items.push(self.conjunction(negated)?);
        }
        Ok(if negated { Expression::all_of(items) } else { Expression::any_of(items) })
    }

    fn conjunction(&mut self, negated: bool) -> Result<Expression, FilterError> {
        let mut items = vec![self.unary(negated)?];
        while self.take_word("and")? {
            items.push(self.unary(negated)?);
        }
        Ok(if negated { Expression::any_of(items) } else { Expression::all_of(items) })
    }

    fn unary(&mut self, mut negated: bool) -> Result<Expression, FilterError> {
        while self.take_word("not")? {
            negated = !negated;
        }
        if self.current.kind == TokenKind::Open { self.group(negated) } else { self.term(negated) }
    }

    fn group(&mut self, negated: bool) -> Result<Expression, FilterError> {
        if self.depth == NESTING_MAX {
            return Err(
                self.error_here(format!("parentheses are nested too deeply, expected at most {NESTING_MAX} levels"))
            );
        }
        self.depth += 1;
        self.advance()?;
        let expression = self.disjunction(negated)?;
        self.expect(&TokenKind::Close, "`and`, `or` or a closing `)`")?;
        self.depth -= 1;
        Ok(expression)
    }

    pub(super) fn count_term(&mut self) -> Result<(), FilterError> {
        if self.terms == TERMS_MAX {
            return Err(self.error_here(format!("too many terms, expected at most {TERMS_MAX} comparisons and values")));
        }
        self.terms += 1;
        Ok(())
    }

    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, FilterError> {
        let found = self.current.kind == TokenKind::Word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, kind: &TokenKind<'_>, expected: &str) -> Result<(), FilterError> {
        if self.current.kind != *kind {
            return Err(self.unexpected(expected));
        }
        self.advance()
    }

    pub(super) fn advance(&mut self) -> Result<(), FilterError> {
        self.current = self.lexer.token()?;
        Ok(())
    }

    pub(super) fn unexpected(&self, expected: &str) -> FilterError {
        self.error_here(match &self.current.kind {
            TokenKind::End => format!("unexpected end, expected {expected}"),
            kind => format!("unexpected {}, expected {expected}", kind.describe()),
        })
    }

    pub(super) fn error_here(&self, message: impl Into<String>) -> FilterError {
        self.error(self.current.offset, message)
    }

    pub(super) fn error(&self, offset: usize, message: impl Into<String>) -> FilterError {
        FilterError::new(self.text, offset, message)
    }
}

fn too_long(text: &str) -> FilterError {
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    FilterError::new(&text[..end], end, format!("filter is too long, expected at most {TEXT_BYTES_MAX} bytes"))
}
