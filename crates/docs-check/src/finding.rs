//! One problem in one line of a file.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    pub problem: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, problem: impl Into<String>) -> Self {
        Finding { file: file.to_owned(), line, problem: problem.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.problem)
    }
}
