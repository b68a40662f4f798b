//! The client port: listening, detecting HTTP/1.1 or HTTP/2, serving and closing connections.

mod accept;
mod addresses;
mod connection;
mod guarded;
mod listener;
mod node_connector;
mod preface;

pub(crate) use accept::{Stage, accept};
pub(crate) use addresses::Addresses;
pub(crate) use listener::listen;
pub(crate) use node_connector::NodeConnector;
