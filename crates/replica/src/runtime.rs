//! The engine's runtime: tokio, with randomness that a simulation can seed.

use crate::entropy::EngineRandom;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use std::future::Future;
use std::io;
use std::time::Duration;

type Inner = TokioRuntime;

/// Tokio except for its random number generator. The engine uses only associated functions, so no value is created.
#[derive(Debug)]
pub struct Runtime(Inner);

impl AsyncRuntime for Runtime {
    type JoinError = <Inner as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Inner as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Inner as AsyncRuntime>::Sleep;
    type Instant = <Inner as AsyncRuntime>::Instant;
    type TimeoutError = <Inner as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Inner as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = EngineRandom;
    type Mpsc = <Inner as AsyncRuntime>::Mpsc;
    type Watch = <Inner as AsyncRuntime>::Watch;
    type Oneshot = <Inner as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Inner as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Inner::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Inner::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Inner::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        Inner::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        Inner::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        Inner::is_panic(join_error)
    }

    fn thread_rng() -> EngineRandom {
        EngineRandom::new()
    }

    fn new(threads: usize) -> Self {
        Runtime(Inner::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Inner::spawn_blocking(f)
    }
}
