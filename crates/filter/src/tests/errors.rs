//! Every kind of parse error, with its exact message and column.

use super::*;

/// Checks the message of a parse error, which includes the column.
#[track_caller]
fn rejected(text: &str, expected: &str) {
    let error = Filter::parse(text).expect_err(text);
    assert_eq!(error.to_string(), format!("invalid filter at {expected}"), "{text}");
}

#[test]
fn unknown_fields_get_a_suggestion() {
    rejected(r#"servce == "a""#, "column 1: unknown field `servce`, did you mean `service`?");
    rejected(r#"drained and Status == up"#, "column 13: unknown field `Status`, did you mean `status`?");
    rejected(r#"metadata.zone == "a""#, "column 1: unknown field `metadata.zone`, did you mean `meta.zone`?");
    rejected(
        "drained or labels",
        "column 12: unknown field `labels`, expected one of id, service, locality, revision, \
         status, health, drained, routable, client, owner, meta.KEY",
    );
    rejected(
        " web ",
        "column 2: unknown field `web`; for a service write `service == \"web\"`, for an id write `id matches \"*web*\"`",
    );
    rejected("metta", "column 1: unknown field `metta`, did you mean `meta.KEY` or `meta[\"KEY\"]`?");
}

#[test]
fn metadata_needs_a_key() {
    rejected(r#"meta == "a""#, r#"column 1: `meta` has no key, expected `meta.KEY` or `meta["KEY"]`"#);
    rejected("exists meta.", r#"column 8: `meta.` has an empty part in its key, expected `meta.KEY` or `meta["KEY"]`"#);
    rejected("exists meta[zone]", "column 13: unexpected `zone`, expected a metadata key in quotes");
    rejected("exists meta['zone'", "column 19: unexpected end, expected a closing `]`");
    rejected("exists service", r#"column 8: `exists` supports metadata only, expected `meta.KEY` or `meta["KEY"]`"#);
}

#[test]
fn missing_and_wrong_operators_are_reported() {
    let operators = "expected `==`, `!=`, `matches`, `not matches`, `in` or `not in`";
    rejected("service", &format!("column 8: missing operator after `service`, {operators}, found the end"));
    rejected(
        r#"meta["a"] "b""#,
        &format!("column 11: missing operator after `meta[\"a\"]`, {operators}, found string `\"b\"`"),
    );
    rejected(
        "status up",
        "column 8: missing operator after `status`, expected `==`, `!=`, `in` or `not in`, found `up`",
    );
    rejected(r#"id not "a""#, "column 8: unexpected string `\"a\"`, expected `matches` or `in` after `not`");
    rejected("status not == up", "column 12: unexpected `==`, expected `in` after `not`");
    rejected(
        r#"status matches "u*""#,
        "column 8: `status` does not support patterns, expected `==`, `!=`, `in` or `not in`",
    );
    rejected(r#"drained in ("x")"#, "column 9: `drained` is a boolean, expected no operator, `==` or `!=`");
    rejected(r#"id = "a""#, "column 4: unexpected character `=`, expected an operator such as `==` or `matches`");
    rejected("drained && routable", "column 9: unexpected character `&`, expected `and`");
    rejected("!drained", "column 1: unexpected character `!`, expected `not` or `!=`");
    rejected("drained ; x", "column 9: unexpected character `;`");
}

#[test]
fn missing_and_wrong_values_are_reported() {
    rejected("service ==", "column 11: unexpected end, expected a value in quotes");
    rejected("service == orders", "column 12: unexpected `orders`, expected a value in quotes");
    rejected("meta.port == 8080", "column 14: unexpected `8080`, expected a value in quotes");
    rejected("service matches or*", "column 17: unexpected `or`, expected a value in quotes");
    rejected("status == ok", "column 11: unknown status `ok`, expected `up`, `down` or `left`");
    rejected("status in (up, 'Down')", "column 16: unknown status `Down`, expected `up`, `down` or `left`");
    rejected("status == (", "column 11: unexpected `(`, expected `up`, `down` or `left`");
    rejected("drained == yes", "column 12: unknown boolean `yes`, expected `true` or `false`");
    rejected("service in ()", "column 13: empty `in ()`, expected at least one value");
    rejected("service in 'a'", "column 12: unexpected string `\"a\"`, expected `(` and the values of `in`");
    rejected("service in ('a',)", "column 17: unexpected `)`, expected a value in quotes");
    rejected("service in ('a' 'b')", "column 17: unexpected string `\"b\"`, expected `,` or a closing `)`");
}

#[test]
fn strings_must_end_and_escapes_exist() {
    rejected(r#"drained and id == "abc"#, "column 19: unterminated string, expected a closing `\"`");
    rejected("id == 'abc\"", "column 7: unterminated string, expected a closing `'`");
    rejected(r#"id == "abc\"#, r"column 11: unterminated string, expected an escaped character after `\`");
    rejected(r#"id == "a\qb""#, r#"column 9: unknown escape `\q`, expected one of `\"` `\'` `\\` `\n` `\t` `\u{…}`"#);
    for escape in [r"\u", r"\u{}", r"\u{d800}", r"\u{110000}", r"\u{+41}", r"\u{0000041}", r"\u{41"] {
        let message = r"column 8: invalid escape, expected a Unicode character in hexadecimal such as `\u{e9}`";
        rejected(&format!("id == \"{escape}\""), message);
    }
}

#[test]
fn structure_must_be_complete() {
    rejected("drained and", "column 12: unexpected end, expected a field such as `service`");
    rejected("not", "column 4: unexpected end, expected a field such as `service`");
    rejected("or drained", "column 1: unexpected `or`, expected a field such as `service`");
    rejected("'a' == id", "column 1: unexpected string `\"a\"`, expected a field such as `service`");
    rejected("(drained", "column 9: unexpected end, expected `and`, `or` or a closing `)`");
    rejected("()", "column 2: unexpected `)`, expected a field such as `service`");
    rejected("drained)", "column 8: unexpected `)` without a matching `(`");
    rejected(
        "drained routable",
        "column 9: unexpected `routable` after a complete filter, expected `and`, `or` or the end",
    );
    rejected(
        "drained AND routable",
        "column 9: unexpected `AND` after a complete filter, expected `and`, `or` or the end",
    );
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| format!("{}drained{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(parse(&nested(NESTING_MAX)), parse("drained"));
    let message = "column 33: parentheses are nested too deeply, expected at most 32 levels";
    rejected(&nested(NESTING_MAX + 1), message);
    rejected(&"(".repeat(TEXT_BYTES_MAX), message);
    // Groups side by side and a run of `not` do not nest.
    parse(&vec!["(drained or routable)"; NESTING_MAX + 1].join(" and "));
    rejected(&"not ".repeat(TEXT_BYTES_MAX / 4), "column 4097: unexpected end, expected a field such as `service`");
    assert_eq!(parse(&format!("{}drained", "not ".repeat(1001))), parse("not drained"));
    rejected(&"not (".repeat(100), "column 165: parentheses are nested too deeply, expected at most 32 levels");
}

#[test]
fn terms_are_limited() {
    let terms = |count| vec!["drained"; count].join(" or ");
    parse(&terms(TERMS_MAX));
    let message = "too many terms, expected at most 256 comparisons and values";
    rejected(&terms(TERMS_MAX + 1), &format!("column {}: {message}", 256 * "drained or ".len() + 1));
    let list = |count| format!("id in ({})", vec!["''"; count].join(","));
    parse(&list(TERMS_MAX));
    rejected(&list(TERMS_MAX + 1), &format!("column {}: {message}", "id in (".len() + 256 * "'',".len() + 1));
}

#[test]
fn text_is_limited() {
    let padded = |length: usize| format!("{:length$}", "drained");
    assert_eq!(parse(&padded(TEXT_BYTES_MAX)), parse("drained"));
    rejected(&padded(TEXT_BYTES_MAX + 1), "column 4097: filter is too long, expected at most 4096 bytes");
    // The limit falls inside the last of these two-byte characters.
    let error = Filter::parse(&format!("x{}", "é".repeat(TEXT_BYTES_MAX))).expect_err("too long");
    assert_eq!((error.offset, error.text.len(), error.column()), (4095, 4095, 2049));
}

#[test]
fn the_pointer_marks_the_column() {
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
    rejected("\u{1b}[31m", "column 1: unexpected character `\\u{1b}`");
    let error = Filter::parse(&"x".repeat(4000)).expect_err("unknown field");
    assert!(error.message.len() < 200, "{error}");
}
