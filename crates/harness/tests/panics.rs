//! A process has one panic hook, so this test runs in its own process.

use convoke_harness::seeds::panics;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of printed panics.
static PRINTED: AtomicUsize = AtomicUsize::new(0);

fn panic_with(what: &'static str) {
    catch_unwind(|| panic!("{what}")).unwrap_err();
}

#[test]
fn panics_of_a_run_are_kept_and_all_others_are_printed() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PRINTED.fetch_add(1, Ordering::Relaxed);
        print(info);
    }));
    let printed = || PRINTED.load(Ordering::Relaxed);
    let keeping = panics::keep();
    panic_with("of the run");
    panic_with("of the run as well");
    let (of_the_run, first) = (printed(), panics::first());
    std::thread::spawn(|| panic_with("of another thread")).join().unwrap();
    drop(keeping);
    assert_eq!((of_the_run, printed()), (0, 1));
    assert!(first.as_ref().is_some_and(|panic| panic.ends_with("of the run")), "{first:?}");
    assert_eq!(panics::take(), first);

    // A failing assertion of the test itself, after the runs.
    panic_with("of the test");
    assert_eq!((printed(), panics::take()), (2, None));
    let again = panics::keep();
    panic_with("of the next run");
    drop(again);
    assert_eq!(printed(), 2);
}
