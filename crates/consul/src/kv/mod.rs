//! Keys as Consul shows them, and transactions of keys (docs/consul-kv.md).

mod evaluate;
mod operation;
mod pair;
mod parse;

pub use evaluate::{Blocked, OpError, OpOutcome, Plan, TxnInput, evaluate};
pub use operation::{KvOp, TxnEntry, Verb};
pub use pair::{Pair, PairView, keys_up_to};
pub use parse::{TXN_OPERATIONS_MAX, TxnError, parse_txn};

#[cfg(test)]
mod tests;
