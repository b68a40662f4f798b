//! Records what clients did and what they were told, and checks that it is linearizable: that every operation can be
//! thought of as happening at one moment between its call and its answer, on one copy of the data.
//!
//! Operations on different keys do not influence each other, so each key is checked by itself. An operation whose
//! outcome is unknown may have happened at any moment after its call, or never.
//!
//! ```
//! use convoke_harness::history::{Answer, Call, History};
//!
//! let mut history = History::new();
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
mod record;

pub use record::{Answer, Call, CallId, History, HistoryViolation, Operation, Value, Verdict};
