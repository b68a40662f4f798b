//! The client port: listening, telling HTTP/1.1 from HTTP/2, serving and closing connections.

mod accept;
mod connection;
mod guarded;
mod listener;
mod preface;

pub(crate) use accept::{Stage, accept};
pub(crate) use listener::listen;
