//! Panics of simulated nodes are findings: they are kept for the report instead of being printed.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Once;

/// Number of characters of a message that are kept.
const MESSAGE_MAX: usize = 2_000;

thread_local! {
    static KEEPING: Cell<bool> = const { Cell::new(false) };
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While this is held, panics of its thread belong to a run.
#[derive(Debug)]
#[must_use = "panics are kept while this is held"]
pub struct Keeping {
    /// Makes the guard `!Send`: it belongs to one thread.
    here: PhantomData<*const ()>,
}

/// Keeps the first panic of this thread from now until the guard is dropped, and discards an earlier one. Panics outside of
/// a run are printed, because a failing test must show its message. With `CONVOKE_SIM_PANICS` in the environment, panics of
/// runs are printed as well.
pub fn keep() -> Keeping {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if KEEPING.get() {
                FIRST.with_borrow_mut(|first| {
                    first.get_or_insert_with(|| info.to_string().chars().take(MESSAGE_MAX).collect());
                });
            }
            if !KEEPING.get() || std::env::var_os("CONVOKE_SIM_PANICS").is_some() {
                before(info);
            }
        }));
    });
    KEEPING.set(true);
    take();
    Keeping { here: PhantomData }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEEPING.set(false);
    }
}

/// The first panic of this thread that was kept and not taken yet.
pub fn take() -> Option<String> {
    FIRST.take()
}

/// The same, and leaves it.
pub fn first() -> Option<String> {
    FIRST.with_borrow(Clone::clone)
}
