//! Judgements about liveness: inferred records (L4).

mod inferred;

pub(crate) use inferred::Inferred;
