//! Parser of terms: fields, operators and values.

use super::error::{FilterError, quote};
use super::expression::{Expression, Flag, Term, Test, TextField, TextTest};
use super::lexer::{TokenKind, is_bare_key};
use super::parser::Parser;
use super::suggestion::nearest;
use super::{Health, Status};

const FIELDS: [&str; 11] =
    ["id", "service", "locality", "revision", "status", "health", "drained", "routable", "client", "owner", "meta"];
const KEYWORDS: [&str; 6] = ["and", "or", "not", "matches", "in", "exists"];
const METADATA_FORMS: &str = "`meta.KEY` or `meta[\"KEY\"]`";

enum Field {
    Text(TextField),
    Status,
    Health,
    Flag(Flag),
}

/// An operator without its negation.
enum Operator {
    Equal,
    Matches,
    In,
}

impl Parser<'_> {
    pub(super) fn term(&mut self, negated: bool) -> Result<Expression, FilterError> {
        self.count_term()?;
        if self.take_word("exists")? {
            return Ok(Expression::Term(Term { negated, test: Test::Exists(self.existing_key()?) }));
        }
        let start = self.current.offset;
        let (test, opposite) = match self.field()? {
            Field::Flag(flag) => (Test::Flag(flag), self.flag_value(start)?),
            Field::Status => {
                let (operator, opposite) = self.operator(start, false)?;
                (Test::Status(self.statuses(&operator)?), opposite)
            }
            Field::Health => {
                let (operator, opposite) = self.operator(start, false)?;
                (Test::Health(self.healths(&operator)?), opposite)
            }
            Field::Text(field) => {
                let (operator, opposite) = self.operator(start, true)?;
                (Test::Text(field, self.text_test(&operator)?), opposite)
            }
        };
        Ok(Expression::Term(Term { negated: negated != opposite, test }))
    }

    fn existing_key(&mut self) -> Result<Box<str>, FilterError> {
        let offset = self.current.offset;
        match self.field()? {
            Field::Text(TextField::Metadata(key)) => Ok(key),
            _ => Err(self.error(offset, format!("`exists` supports metadata only, expected {METADATA_FORMS}"))),
        }
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let TokenKind::Word(word) = self.current.kind else {
            return Err(self.unexpected("a field such as `service`"));
        };
        let field = match word {
            "id" => Field::Text(TextField::Id),
            "service" => Field::Text(TextField::Service),
            "locality" => Field::Text(TextField::Locality),
            "revision" => Field::Text(TextField::Revision),
            "client" => Field::Text(TextField::Client),
            "owner" => Field::Text(TextField::Owner),
            "status" => Field::Status,
            "health" => Field::Health,
            "drained" => Field::Flag(Flag::Drained),
            "routable" => Field::Flag(Flag::Routable),
            "meta" => return Ok(Field::Text(TextField::Metadata(self.bracketed_key()?))),
            _ if KEYWORDS.contains(&word) => return Err(self.unexpected("a field such as `service`")),
            _ => match word.strip_prefix("meta.") {
                Some(key) if is_bare_key(key) => Field::Text(TextField::Metadata(key.into())),
                Some(_) => return Err(self.error_here(bad_key(word))),
                None => return Err(self.error_here(unknown_field(word, self.text.trim() == word))),
            },
        };
        self.advance()?;
        Ok(field)
    }

    /// Parses `meta["KEY"]` and returns the key.
    fn bracketed_key(&mut self) -> Result<Box<str>, FilterError> {
        let offset = self.current.offset;
        self.advance()?;
        if self.current.kind != TokenKind::OpenBracket {
            return Err(self.error(offset, format!("`meta` has no key, expected {METADATA_FORMS}")));
        }
        self.advance()?;
        let TokenKind::Text(key) = &self.current.kind else {
            return Err(self.unexpected("a metadata key in quotes"));
        };
        let key = key.as_str().into();
        self.advance()?;
        self.expect(&TokenKind::CloseBracket, "a closing `]`")?;
        Ok(key)
    }

    /// Parses the operator after the field that starts at `start`. Also returns whether it is negated.
    fn operator(&mut self, start: usize, patterns: bool) -> Result<(Operator, bool), FilterError> {
        let name = quote(self.source_since(start));
        let not = self.take_word("not")?;
        let found = match self.current.kind {
            TokenKind::Equal if !not => (Operator::Equal, false),
            TokenKind::NotEqual if !not => (Operator::Equal, true),
            TokenKind::Word("in") => (Operator::In, not),
            TokenKind::Word("matches") if patterns => (Operator::Matches, not),
            TokenKind::Word("matches") => {
                let message = format!("{name} does not support patterns, expected `==`, `!=`, `in` or `not in`");
                return Err(self.error_here(message));
            }
            _ if not && patterns => return Err(self.unexpected("`matches` or `in` after `not`")),
            _ if not => return Err(self.unexpected("`in` after `not`")),
            _ => {
                let patterns = if patterns { "`matches`, `not matches`, " } else { "" };
                let found = self.current.kind.describe();
                return Err(self.error_here(format!(
                    "missing operator after {name}, expected `==`, `!=`, {patterns}`in` or `not in`, found {found}"
                )));
            }
        };
        self.advance()?;
        Ok(found)
    }

    fn text_test(&mut self, operator: &Operator) -> Result<TextTest, FilterError> {
        Ok(match operator {
            Operator::Matches => TextTest::matches(&self.string()?),
            Operator::Equal => TextTest::one_of(vec![self.string()?]),
            Operator::In => TextTest::one_of(self.list(Self::string)?),
        })
    }

    fn statuses(&mut self, operator: &Operator) -> Result<Vec<Status>, FilterError> {
        let mut statuses = match operator {
            Operator::In => self.list(Self::status)?,
            Operator::Equal | Operator::Matches => vec![self.status()?],
        };
        statuses.sort_unstable();
        statuses.dedup();
        Ok(statuses)
    }

    fn healths(&mut self, operator: &Operator) -> Result<Vec<Health>, FilterError> {
        let mut healths = match operator {
            Operator::In => self.list(Self::health)?,
            Operator::Equal | Operator::Matches => vec![self.health()?],
        };
        healths.sort_unstable();
        healths.dedup();
        Ok(healths)
    }

    /// Parses the optional comparison after the flag that starts at `start`. Returns whether the term is negated.
    fn flag_value(&mut self, start: usize) -> Result<bool, FilterError> {
        let different = match self.current.kind {
            TokenKind::Equal => false,
            TokenKind::NotEqual => true,
            TokenKind::Word("matches" | "in" | "not") => {
                let name = quote(self.source_since(start));
                return Err(self.error_here(format!("{name} is a boolean, expected no operator, `==` or `!=`")));
            }
            _ => return Ok(false),
        };
        self.advance()?;
        let value = match self.bare_or_quoted("`true` or `false`")? {
            "true" => true,
            "false" => false,
            word => {
                return Err(self.error_here(format!("unknown boolean {}, expected `true` or `false`", quote(word))));
            }
        };
        self.advance()?;
        Ok(value == different)
    }

    fn list<T>(&mut self, item: fn(&mut Self) -> Result<T, FilterError>) -> Result<Vec<T>, FilterError> {
        self.expect(&TokenKind::Open, "`(` and the values of `in`")?;
        if self.current.kind == TokenKind::Close {
            return Err(self.error_here("empty `in ()`, expected at least one value"));
        }
        let mut items = vec![item(self)?];
        while self.current.kind == TokenKind::Comma {
            self.advance()?;
            self.count_term()?;
            items.push(item(self)?);
        }
        self.expect(&TokenKind::Close, "`,` or a closing `)`")?;
        Ok(items)
    }

    fn string(&mut self) -> Result<Box<str>, FilterError> {
        let value = match &self.current.kind {
            TokenKind::Text(value) => value.as_str().into(),
            _ => return Err(self.unexpected("a value in quotes")),
        };
        self.advance()?;
        Ok(value)
    }

    fn status(&mut self) -> Result<Status, FilterError> {
        let word = self.bare_or_quoted("`up`, `down` or `left`")?;
        let status = [Status::Up, Status::Down, Status::Left].into_iter().find(|status| status.as_str() == word);
        let Some(status) = status else {
            return Err(self.error_here(format!("unknown status {}, expected `up`, `down` or `left`", quote(word))));
        };
        self.advance()?;
        Ok(status)
    }

    fn health(&mut self) -> Result<Health, FilterError> {
        let word = self.bare_or_quoted("`passing`, `warning` or `critical`")?;
        let Some(health) = Health::parse(word) else {
            let message = format!("unknown health {}, expected `passing`, `warning` or `critical`", quote(word));
            return Err(self.error_here(message));
        };
        self.advance()?;
        Ok(health)
    }

    fn bare_or_quoted(&self, expected: &str) -> Result<&str, FilterError> {
        match &self.current.kind {
            TokenKind::Word(word) => Ok(word),
            TokenKind::Text(text) => Ok(text),
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Returns the text from `start` up to the current token.
    fn source_since(&self, start: usize) -> &str {
        self.text[start..self.current.offset].trim_end()
    }
}

fn bad_key(word: &str) -> String {
    format!("{} has an empty part in its key, expected {METADATA_FORMS}", quote(word))
}

/// Longest word that is taken for a search.
const SEARCH_BYTES: usize = 64;

/// `whole`: the filter consists of this word.
fn unknown_field(word: &str, whole: bool) -> String {
    let (head, rest) = word.find('.').map_or((word, ""), |dot| word.split_at(dot));
    let found = quote(word);
    match nearest(head, &FIELDS) {
        Some("meta") if rest.len() > 1 => {
            format!("unknown field {found}, did you mean {}?", quote(&format!("meta{rest}")))
        }
        Some("meta") => format!("unknown field {found}, did you mean {METADATA_FORMS}?"),
        Some(name) => format!("unknown field {found}, did you mean `{name}`?"),
        // A search word.
        None if whole && word.len() <= SEARCH_BYTES => {
            let service = quote(&format!("service == \"{word}\""));
            format!("unknown field {found}; for a service write {service}, for an id write `id matches \"*{word}*\"`")
        }
        None => format!("unknown field {found}, expected one of {}", FIELDS.join(", ").replace("meta", "meta.KEY")),
    }
}
