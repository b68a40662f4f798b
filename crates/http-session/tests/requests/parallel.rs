//! Parallel requests of one session, and the tokens that their answers contain (C11).

use super::*;

/// A request that was executed and is not answered yet.
struct Executed {
    request: RequestFlow,
    results: Vec<Result<Option<Version>, Rejection>>,
    last_write: Dot,
}

impl Shell {
    /// Executes a request. Its answer waits, for example until the write is replicated.
    fn begin(&mut self, operation: SessionOperation, number: Option<u64>, token: &SessionToken) -> Executed {
        let mut request = ordered(operation, number, Some(token.clone()));
        let step = request.begin();
        let Step::Submit(calls) = self.until_submitted(&mut request, step) else { panic!("not submitted") };
        let results = self.execute(calls);
        Executed { request, results, last_write: self.node.last_dot() }
    }

    /// Answers a request that was executed, and returns the token.
    fn answer(&mut self, executed: Executed) -> SessionToken {
        let Executed { mut request, results, last_write } = executed;
        let step = request.answered(results, last_write, true);
        let step = self.go_on(&mut request, step);
        assert!(matches!(step, Step::Finish { .. }), "{step:?}");
        self.token.clone()
    }

    fn token(&mut self, operation: SessionOperation, number: Option<u64>, token: &SessionToken) -> SessionToken {
        let executed = self.begin(operation, number, token);
        self.answer(executed)
    }
}

#[track_caller]
fn greater_covers_lesser(tokens: &[SessionToken]) {
    for (one, other) in tokens.iter().flat_map(|one| tokens.iter().map(move |other| (one, other))) {
        assert!(one.text() < other.text() || one.covers(other), "{one:?} is greater than {other:?}");
    }
}

fn patch_of_nothing() -> SessionOperation {
    let update = Arc::new(MetadataUpdate::set("v", "1".to_owned()));
    SessionOperation::Update { id: "unregistered".to_owned(), update, expected: None }
}

#[test]
fn a_greater_token_covers_the_lesser_one() {
    let mut shell = Shell::new();
    shell.drive(ordered(register("m"), Some(1), None));
    let old = shell.token.clone();
    let written = shell.token(patch("acknowledged"), Some(2), &old);
    let rejected = shell.token(patch_of_nothing(), Some(3), &old);
    let heartbeat = shell.token(SessionOperation::Heartbeat, None, &old);
    assert!(heartbeat.text() >= written.text(), "a heartbeat with an old token returns the current one");
    greater_covers_lesser(&[old, written, rejected, heartbeat]);
}

/// The answers of two writes wait until the writes are replicated, and arrive in either order. Other requests are answered
/// in between.
#[test]
fn a_greater_token_covers_the_lesser_one_while_answers_wait() {
    for first_answered_first in [true, false] {
        let mut shell = Shell::new();
        shell.drive(ordered(register("m"), Some(1), None));
        let old = shell.token.clone();
        let mut tokens = vec![old.clone()];
        let first = shell.begin(patch("first"), Some(2), &old);
        tokens.push(shell.token(patch_of_nothing(), Some(4), &old));
        let second = shell.begin(patch("second"), Some(3), &old);
        tokens.push(shell.token(SessionOperation::Heartbeat, None, &old));
        let (one, other) = if first_answered_first { (first, second) } else { (second, first) };
        tokens.push(shell.answer(one));
        tokens.push(shell.token(patch_of_nothing(), Some(5), &old));
        tokens.push(shell.token(SessionOperation::Heartbeat, None, &old));
        tokens.push(shell.answer(other));
        tokens.push(shell.token(SessionOperation::Heartbeat, None, &old));
        greater_covers_lesser(&tokens);
        assert_eq!(tokens.iter().map(SessionToken::text).max(), tokens.last().map(SessionToken::text));
    }
}
