//! The authors and the order of writes: node ids, origins, dots, ranks and vector clocks (rules D1, D3).

mod clock;
mod origin;
mod rank;
mod sequence;

pub use clock::VectorClock;
pub use origin::{Incarnation, InvalidNodeId, NodeId, OriginId};
pub use rank::{Dot, InvalidVersion, Rank, Version};
pub use sequence::REQUEST_MAX;
pub(crate) use sequence::{MAX_SEQ_TAKEN, adopted, decision_of, moved, request_of, written_by};
