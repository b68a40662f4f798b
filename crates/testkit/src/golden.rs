//! Comparison of outputs with golden files.

use std::path::Path;

/// Compares a text with a file next to the calling source file. `UPDATE_GOLDEN=1` writes the file instead.
///
/// # Panics
/// If they differ.
#[macro_export]
macro_rules! golden {
    ($path:expr, $actual:expr) => {
        $crate::compare_golden(env!("CARGO_MANIFEST_DIR"), file!(), $path, $actual)
    };
}

/// Implementation of [`golden!`].
///
/// # Panics
/// If the text differs from the file.
#[track_caller]
pub fn compare_golden(manifest_dir: &str, source: &str, path: &str, actual: &str) {
    // `file!` is relative to the workspace, two levels above the crate.
    let source = Path::new(manifest_dir).join("../..").join(source);
    let path = source.with_file_name("").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.with_file_name("")).expect("the directory can be made");
        std::fs::write(&path, actual).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} is not up to date; UPDATE_GOLDEN=1 writes it. Now it would be:\n{actual}",
        path.display()
    );
}
