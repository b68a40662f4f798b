//! Panics of simulated nodes are findings: they are kept for the report instead of being printed.

use std::cell::RefCell;
use std::sync::Once;

/// More of a message is not kept.
const MESSAGE_MAX: usize = 2_000;

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics from now on, the first of each thread, and forgets those of this thread so far. With `CONVOKE_SIM_PANICS` in the environment
/// they are printed, too.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            FIRST.with_borrow_mut(|first| {
                first.get_or_insert_with(|| info.to_string().chars().take(MESSAGE_MAX).collect());
            });
            if std::env::var_os("CONVOKE_SIM_PANICS").is_some() {
                before(info);
            }
        }));
    });
    take();
}

/// The first panic of this thread that was not taken yet.
pub fn take() -> Option<String> {
    FIRST.take()
}

/// The same, and leaves it.
pub fn first() -> Option<String> {
    FIRST.with_borrow(Clone::clone)
}
