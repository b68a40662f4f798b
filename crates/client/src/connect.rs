//! How connections come about: over TCP, or whatever a simulation puts in its place.

use std::fmt::Debug;
use std::pin::Pin;
use tonic::transport::{Channel, Endpoint, Error};

/// What [`Connect::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Channel, Error>> + Send + 'a>>;

/// Opens connections for an [`Ambassador`](crate::log::Ambassador).
pub trait Connect: Debug + Send + Sync + 'static {
    /// Connects to where the endpoint says, with all its settings.
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a>;
}

/// The real thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Connect for Tcp {
    fn connect<'a>(&'a self, endpoint: &'a Endpoint) -> Connecting<'a> {
        Box::pin(endpoint.connect())
    }
}
