//! Every way a text can be wrong, with the exact sentence and column.

use super::*;

/// The sentence of the error, which carries its column.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = Filter::parse(text).expect_err(text);
    assert_eq!(error.to_string(), format!("invalid filter at {expected}"), "{text}");
}

#[test]
fn unknown_fields_get_a_suggestion() {
    refused(r#"servce == "a""#, "column 1: unknown field `servce`, did you mean `service`?");
    refused(r#"drained and Status == up"#, "column 13: unknown field `Status`, did you mean `status`?");
    refused(r#"metadata.zone == "a""#, "column 1: unknown field `metadata.zone`, did you mean `meta.zone`?");
    refused(
        "labels",
        "column 1: unknown field `labels`, expected one of id, service, locality, revision, \
         status, drained, routable, client, owner, meta.KEY",
    );
    refused("metta", "column 1: unknown field `metta`, did you mean `meta.KEY` or `meta[\"KEY\"]`?");
}

#[test]
fn metadata_needs_a_key() {
    refused(r#"meta == "a""#, r#"column 1: `meta` has no key, expected `meta.KEY` or `meta["KEY"]`"#);
    refused("exists meta.", r#"column 8: `meta.` has an empty part in its key, expected `meta.KEY` or `meta["KEY"]`"#);
    refused("exists meta[zone]", "column 13: unexpected `zone`, expected a metadata key in quotes");
    refused("exists meta['zone'", "column 19: unexpected end, expected a closing `]`");
    refused("exists service", r#"column 8: `exists` is about metadata only, expected `meta.KEY` or `meta["KEY"]`"#);
}

#[test]
fn operators_are_asked_for() {
    let operators = "expected `==`, `!=`, `matches`, `not matches`, `in` or `not in`";
    refused("service", &format!("column 8: missing operator after `service`, {operators}, found the end"));
    refused(
        r#"meta["a"] "b""#,
        &format!("column 11: missing operator after `meta[\"a\"]`, {operators}, found string `\"b\"`"),
    );
    refused(
        "status up",
        "column 8: missing operator after `status`, expected `==`, `!=`, `in` or `not in`, found `up`",
    );
    refused(r#"id not "a""#, "column 8: unexpected string `\"a\"`, expected `matches` or `in` after `not`");
    refused("status not == up", "column 12: unexpected `==`, expected `in` after `not`");
    refused(
        r#"status matches "u*""#,
        "column 8: `status` is not matched with patterns, expected `==`, `!=`, `in` or `not in`",
    );
    refused(r#"drained in ("x")"#, "column 9: `drained` is true or false, expected it alone or with `==` or `!=`");
    refused(r#"id = "a""#, "column 4: unexpected character `=`, expected an operator such as `==` or `matches`");
    refused("drained && routable", "column 9: unexpected character `&`, expected `and`");
    refused("!drained", "column 1: unexpected character `!`, expected `not` or `!=`");
    refused("drained ; x", "column 9: unexpected character `;`");
}

#[test]
fn values_are_asked_for() {
    refused("service ==", "column 11: unexpected end, expected a value in quotes");
    refused("service == orders", "column 12: unexpected `orders`, expected a value in quotes");
    refused("meta.port == 8080", "column 14: unexpected `8080`, expected a value in quotes");
    refused("service matches or*", "column 17: unexpected `or`, expected a value in quotes");
    refused("status == ok", "column 11: unknown status `ok`, expected `up`, `down` or `left`");
    refused("status in (up, 'Down')", "column 16: unknown status `Down`, expected `up`, `down` or `left`");
    refused("status == (", "column 11: unexpected `(`, expected `up`, `down` or `left`");
    refused("drained == yes", "column 12: unknown truth value `yes`, expected `true` or `false`");
    refused("service in ()", "column 13: empty `in ()`, expected at least one value");
    refused("service in 'a'", "column 12: unexpected string `\"a\"`, expected `(` and the values of `in`");
    refused("service in ('a',)", "column 17: unexpected `)`, expected a value in quotes");
    refused("service in ('a' 'b')", "column 17: unexpected string `\"b\"`, expected `,` or a closing `)`");
}

#[test]
fn strings_must_end_and_escapes_exist() {
    refused(r#"drained and id == "abc"#, "column 19: unterminated string, expected a closing `\"`");
    refused("id == 'abc\"", "column 7: unterminated string, expected a closing `'`");
    refused(r#"id == "abc\"#, r"column 11: unterminated string, expected an escaped character after `\`");
    refused(r#"id == "a\qb""#, r#"column 9: unknown escape `\q`, expected one of `\"` `\'` `\\` `\n` `\t` `\u{…}`"#);
    for escape in [r"\u", r"\u{}", r"\u{d800}", r"\u{110000}", r"\u{+41}", r"\u{0000041}", r"\u{41"] {
        let message = r"column 8: invalid escape, expected a Unicode character in hexadecimal such as `\u{e9}`";
        refused(&format!("id == \"{escape}\""), message);
    }
}

#[test]
fn structure_must_be_complete() {
    refused("drained and", "column 12: unexpected end, expected a field such as `service`");
    refused("not", "column 4: unexpected end, expected a field such as `service`");
    refused("or drained", "column 1: unexpected `or`, expected a field such as `service`");
    refused("'a' == id", "column 1: unexpected string `\"a\"`, expected a field such as `service`");
    refused("(drained", "column 9: unexpected end, expected `and`, `or` or a closing `)`");
    refused("()", "column 2: unexpected `)`, expected a field such as `service`");
    refused("drained)", "column 8: unexpected `)`, there is no `(` that it closes");
    refused(
        "drained routable",
        "column 9: unexpected `routable` after a complete filter, expected `and`, `or` or the end",
    );
    refused(
        "drained AND routable",
        "column 9: unexpected `AND` after a complete filter, expected `and`, `or` or the end",
    );
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| format!("{}drained{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(parse(&nested(NESTING_MAX)), parse("drained"));
    let message = "column 33: too deep nesting, expected at most 32 levels of parentheses";
    refused(&nested(NESTING_MAX + 1), message);
    refused(&"(".repeat(TEXT_BYTES_MAX), message);
    // Groups side by side and a run of `not` do not nest.
    parse(&vec!["(drained or routable)"; NESTING_MAX + 1].join(" and "));
    refused(&"not ".repeat(TEXT_BYTES_MAX / 4), "column 4097: unexpected end, expected a field such as `service`");
    assert_eq!(parse(&format!("{}drained", "not ".repeat(1001))), parse("not drained"));
    refused(&"not (".repeat(100), "column 165: too deep nesting, expected at most 32 levels of parentheses");
}

#[test]
fn terms_are_limited() {
    let terms = |count| vec!["drained"; count].join(" or ");
    parse(&terms(TERMS_MAX));
    let message = "too many terms, expected at most 256 comparisons and values";
    refused(&terms(TERMS_MAX + 1), &format!("column {}: {message}", 256 * "drained or ".len() + 1));
    let list = |count| format!("id in ({})", vec!["''"; count].join(","));
    parse(&list(TERMS_MAX));
    refused(&list(TERMS_MAX + 1), &format!("column {}: {message}", "id in (".len() + 256 * "'',".len() + 1));
}

#[test]
fn text_is_limited() {
    let padded = |length: usize| format!("{:length$}", "drained");
    assert_eq!(parse(&padded(TEXT_BYTES_MAX)), parse("drained"));
    refused(&padded(TEXT_BYTES_MAX + 1), "column 4097: too long text, expected at most 4096 bytes");
    // The limit falls inside the last of these two-byte characters.
    let error = Filter::parse(&format!("x{}", "é".repeat(TEXT_BYTES_MAX))).expect_err("too long");
    assert_eq!((error.offset, error.text.len(), error.column()), (4095, 4095, 2049));
}

#[test]
fn pointer_shows_the_place() {
    let error = Filter::parse("id == 'é🦀' nad drained").expect_err("no operator");
    assert_eq!(error.offset, 15);
    assert_eq!(error.column(), 12);
    assert_eq!(error.pointer(), "id == 'é🦀' nad drained\n           ^");

    let error = Filter::parse("drained\n\tor x\nor drained").expect_err("unknown field");
    assert!(error.to_string().starts_with("invalid filter at line 2, column 5: unknown field `x`"), "{error}");
    assert_eq!(error.pointer(), " or x\n    ^");

    let error = Filter::parse("drained and").expect_err("unexpected end");
    assert_eq!(error.pointer(), "drained and\n           ^");
}

#[test]
fn messages_quote_hostile_text_safely() {
    refused("\u{1b}[31m", "column 1: unexpected character `\\u{1b}`");
    let error = Filter::parse(&"x".repeat(4000)).expect_err("unknown field");
    assert!(error.message.len() < 200, "{error}");
}
