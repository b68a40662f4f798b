//! Records the calls of clients and their answers, and checks that the history is linearizable: every operation takes
//! effect at one moment between its call and its answer, on one copy of the data.
//!
//! Operations on different keys are independent, so each key is checked separately. An operation with an unknown
//! outcome may have happened at any time after its call, or never. Transactions, locks and guarded writes use several
//! keys and locks at once: [`coordination`].
//!
//! ```
//! use convoke_harness::history::{Answer, Call, CallHistory};
//!
//! let mut history = CallHistory::new();
//! let put = history.call(0, "k", Call::put(1), 10);
//! let get = history.call(1, "k", Call::Get, 12);
//! history.answer(get, 13, Answer::Got(Some(1)));
//! history.answer(put, 20, Answer::written());
//! assert!(history.check().is_ok());
//!
//! let late = history.call(1, "k", Call::Get, 30);
//! history.answer(late, 31, Answer::Got(None));
//! assert!(history.check().is_err());
//! ```

mod checker;
pub mod coordination;
mod key;
mod record;

pub use record::{Answer, Call, CallHistory, CallId, HistoryViolation, Operation, Value, Verdict};
