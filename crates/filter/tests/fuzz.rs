//! Mutated filters: each is rejected with a position inside of the text, or means the same when it is written again.

use convoke_filter::Filter;

#[test]
fn fuzz_filters() {
    let corpus = [
        r#"service == "orders" and (status == up or drained) and not meta.zone != "b""#,
        r#"meta["a b"] like "x*?" or id in ["a", "b"] and routable == false"#,
        "service in ['a'] and has(meta.x)",
        "((((routable))))",
        "größe == 'ü'",
    ];
    convoke_fuzz::texts(&corpus, |text| {
        if let Ok(filter) = Filter::parse(text) {
            let written = filter.to_string();
            assert_eq!(Filter::parse(&written).map(|again| again.to_string()), Ok(written));
        }
    });
}
