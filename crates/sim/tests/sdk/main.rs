//! The SDK's session and watch state against real nodes, in arbitrary interleavings that the simulator's network does not produce.

mod cluster;
mod session;
mod watch;
