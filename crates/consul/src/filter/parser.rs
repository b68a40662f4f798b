//! The grammar: `or`, `and`, `not`, parentheses, and comparisons of a selector with a value.

use super::lexer::Token;
use regex_lite::{Regex, RegexBuilder};
use std::vec::IntoIter;

/// Deepest nesting.
const DEPTH_MAX: usize = 32;
/// Size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(super) enum Node {
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Match { selector: Vec<String>, comparison: Comparison },
}

#[derive(Debug)]
pub(super) enum Comparison {
    Equal(String),
    Contains(String),
    Empty,
    Matches(Regex),
}

pub(super) fn parse(tokens: Vec<Token>) -> Result<Node, String> {
    let mut parser = Parser { next: None, tokens: tokens.into_iter() };
    parser.advance();
    let node = parser.or(0)?;
    match parser.next {
        None => Ok(node),
        Some(token) => Err(unexpected(Some(&token))),
    }
}

struct Parser {
    next: Option<Token>,
    tokens: IntoIter<Token>,
}

impl Parser {
    fn advance(&mut self) -> Option<Token> {
        std::mem::replace(&mut self.next, self.tokens.next())
    }

    fn accept(&mut self, keyword: &str) -> bool {
        let found = matches!(&self.next, Some(Token::Word(word)) if word == keyword);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), String> {
        match self.advance() {
            Some(token) if token == *wanted => Ok(()),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn or(&mut self, depth: usize) -> Result<Node, String> {
        let mut node = self.and(depth)?;
        while self.accept("or") {
            node = Node::Or(Box::new(node), Box::new(self.and(depth)?));
        }
        Ok(node)
    }

    fn and(&mut self, depth: usize) -> Result<Node, String> {
        let mut node = self.not(depth)?;
        while self.accept("and") {
            node = Node::And(Box::new(node), Box::new(self.not(depth)?));
        }
        Ok(node)
    }

    fn not(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!("nested more than {DEPTH_MAX} times"));
        }
        if self.accept("not") {
            return Ok(Node::Not(Box::new(self.not(depth + 1)?)));
        }
        if self.next == Some(Token::Open) {
            self.advance();
            let node = self.or(depth + 1)?;
            self.expect(&Token::Close)?;
            return Ok(node);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let first = self.advance();
        // `VALUE in SELECTOR`, or `SELECTOR …`: only the next word tells.
        let negated = match &self.next {
            Some(Token::Word(word)) if word == "in" => Some(false),
            Some(Token::Word(word)) if word == "not" => Some(true),
            _ => None,
        };
        let value = match (&first, negated) {
            (Some(Token::Text(text) | Token::Word(text)), Some(_)) => Some(text.clone()),
            _ => None,
        };
        if let (Some(value), Some(negated)) = (value, negated) {
            self.advance();
            if !negated || self.accept("in") {
                let selector = self.advance();
                let node = Node::Match { selector: self.selector(selector)?, comparison: Comparison::Contains(value) };
                return Ok(negate(node, negated));
            }
            // `SELECTOR not contains`, `SELECTOR not matches`
            return Ok(negate(self.word_operator(first)?, true));
        }
        let selector = self.selector(first)?;
        let (comparison, negated) = match self.advance() {
            Some(Token::Equal) => (Comparison::Equal(self.value()?), false),
            Some(Token::NotEqual) => (Comparison::Equal(self.value()?), true),
            Some(Token::Word(word)) if word == "contains" => (Comparison::Contains(self.value()?), false),
            Some(Token::Word(word)) if word == "matches" => (Comparison::Matches(self.pattern()?), false),
            Some(Token::Word(word)) if word == "not" => {
                return Ok(negate(self.operator(selector)?, true));
            }
            Some(Token::Word(word)) if word == "is" => {
                let negated = self.accept("not");
                if !self.accept("empty") {
                    return Err(unexpected(self.next.as_ref()));
                }
                (Comparison::Empty, negated)
            }
            other => return Err(unexpected(other.as_ref())),
        };
        Ok(negate(Node::Match { selector, comparison }, negated))
    }

    fn word_operator(&mut self, selector: Option<Token>) -> Result<Node, String> {
        let selector = self.selector(selector)?;
        self.operator(selector)
    }

    fn operator(&mut self, selector: Vec<String>) -> Result<Node, String> {
        let comparison = if self.accept("contains") {
            Comparison::Contains(self.value()?)
        } else if self.accept("matches") {
            Comparison::Matches(self.pattern()?)
        } else {
            return Err(unexpected(self.next.as_ref()));
        };
        Ok(Node::Match { selector, comparison })
    }

    /// `A.b` or `A["b"]`.
    fn selector(&mut self, first: Option<Token>) -> Result<Vec<String>, String> {
        let Some(Token::Word(word)) = first else { return Err(unexpected(first.as_ref())) };
        let mut parts: Vec<String> = word.split('.').map(ToOwned::to_owned).collect();
        while self.next == Some(Token::OpenBracket) {
            self.advance();
            match self.advance() {
                Some(Token::Text(text)) => parts.push(text),
                other => return Err(unexpected(other.as_ref())),
            }
            self.expect(&Token::CloseBracket)?;
        }
        Ok(parts)
    }

    fn value(&mut self) -> Result<String, String> {
        match self.advance() {
            Some(Token::Word(text) | Token::Text(text)) => Ok(text),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn pattern(&mut self) -> Result<Regex, String> {
        let text = self.value()?;
        RegexBuilder::new(&text)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|error| format!("pattern {text:?}: {error}"))
    }
}

fn negate(node: Node, negated: bool) -> Node {
    if negated { Node::Not(Box::new(node)) } else { node }
}

fn unexpected(token: Option<&Token>) -> String {
    match token {
        None => "no match found at the end of the expression".to_owned(),
        Some(token) => format!("no match found at {token:?}"),
    }
}
