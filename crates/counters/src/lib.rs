//! Counters that are declared once: the field, the name of the metric and its help text.
//!
//! The doc comment of a field is the help text of its metric, and the field's name is the metric's name without the
//! prefix of its section and without `_total`. This crate knows no metrics library: it must stay usable in pure cores.
//! `convoke-server` exports the counters.
//!
//! ```
//! convoke_counters::counters! {
//!     /// Counters of a mailbox.
//!     pub struct Counters {
//!         /// Letters delivered.
//!         letters_delivered,
//!         /// Letters rejected
//!         /// because the box was full.
//!         letters_rejected,
//!     }
//! }
//!
//! let counters = Counters { letters_rejected: 2, ..Counters::default() };
//! let rejected = counters.counts()[1];
//! assert_eq!((rejected.name, rejected.value), ("letters_rejected", 2));
//! assert_eq!(rejected.help(), "Letters rejected because the box was full.");
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter: its name, its help text and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub name: &'static str,
    #[doc(hidden)]
    pub doc: &'static str,
    pub value: u64,
}

impl Count {
    /// Returns the help text of the metric.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.doc.trim_start()
    }
}

/// Adds to a counter that other threads read.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Reads a counter that other threads raise.
#[must_use]
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Declares a struct of plain `u64` counters. Every counter needs a doc comment: it is the help text.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $Counters:ident { $($(#[doc = $help:literal])+ $name:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl $Counters {
            /// Returns all counters with their names and help texts, in the order of their declaration.
            #[must_use]
            pub fn counts(&self) -> Vec<$crate::Count> {
                vec![$($crate::Count { name: stringify!($name), doc: concat!($($help),+), value: self.$name },)+]
            }
        }
    };
}

/// Declares the same struct as [`counters!`], and a second one with atomic counters that it is read from.
#[macro_export]
macro_rules! atomic_counters {
    (
        $(#[$meta:meta])*
        pub struct $Counters:ident read from $Atomics:ident {
            $($(#[doc = $help:literal])+ $name:ident),+ $(,)?
        }
    ) => {
        $crate::counters! {
            $(#[$meta])*
            pub struct $Counters {
                $($(#[doc = $help])+ $name,)+
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct $Atomics {
            $(pub(crate) $name: std::sync::atomic::AtomicU64,)+
        }

        impl $Atomics {
            pub(crate) fn read(&self) -> $Counters {
                $Counters { $($name: $crate::read(&self.$name),)+ }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::add;

    crate::atomic_counters! {
        /// Counters of a test.
        pub struct Counters read from Atomics {
            /// Things that happened.
            happened,
            /// Bytes sent.
            sent_bytes,
        }
    }

    #[test]
    fn counters_are_read_with_names_and_help_texts_in_order() {
        let atomics = Atomics::default();
        add(&atomics.sent_bytes, 7);
        let counters = atomics.read();
        let found: Vec<_> = counters.counts().iter().map(|count| (count.name, count.help(), count.value)).collect();
        assert_eq!(found, [("happened", "Things that happened.", 0), ("sent_bytes", "Bytes sent.", 7)]);
    }
}
