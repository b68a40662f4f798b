use super::{FORBIDDEN_WORDS, forbidden_crates, scan};

#[test]
fn a_forbidden_crate_would_be_noticed() {
    let planted = ["bytes", "mio", "tokio"].map(str::to_owned);
    assert_eq!(forbidden_crates(&planted), ["mio", "tokio"]);
}

#[test]
fn a_planted_violation_is_found_wherever_it_stands() {
    for word in FORBIDDEN_WORDS {
        assert_eq!(scan(&format!("fn f() {{\n    {word};\n}}\n")), [(2, *word)], "{word} in a function");
        assert_eq!(scan(&format!("use a::{{b, {word}}};\n")), [(1, *word)], "{word} in an import");
        // After a test module the code goes on.
        let after = format!("#[cfg(test)]\nmod tests {{\n    fn f() {{}}\n}}\n\nfn g() {{ {word} }}\n");
        assert_eq!(scan(&after), [(6, *word)], "{word} after a test module");
        let declared = format!("#[cfg(test)]\nmod tests;\n\nfn g() {{ {word} }}\n");
        assert_eq!(scan(&declared), [(4, *word)], "{word} after a declared test module");
    }
    assert_eq!(scan("use std::{net, time};\n"), [(1, "std::net")], "grouped imports are unfolded");
    assert_eq!(scan("use std::{\n    fmt,\n    collections::{BTreeMap, HashMap},\n};\n"), [(3, "HashMap")]);
    assert_eq!(scan("use std::{\n    fmt,\n    env,\n};\n"), [(1, "std::env")]);
}

#[test]
fn words_in_tests_and_comments_and_inside_longer_names_are_no_violation() {
    assert_eq!(
        scan("// an Instant is never read\n/// nor a HashMap kept\n//! nor tokio used\nlet a = 1; // HashSet\n"),
        []
    );
    assert_eq!(
        scan("#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n    fn f() { println!(); }\n}\n"),
        []
    );
    assert_eq!(scan("struct Instantly; fn tokiofy() {} let MyHashMapLike = std::networking;\n"), []);
}
