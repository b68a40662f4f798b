mod errors;

use super::*;

/// Evaluates filters on a drained `up` member of `orders` with metadata, including an empty `note`.
fn check(cases: &[(&str, bool)]) {
    let pairs = [("a key", "1"), ("note", ""), ("version", "v1")];
    let metadata: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let subject = Subject {
        id: "orders-1",
        service: "orders",
        locality: "aws.us-east-1.a",
        revision: "r7",
        status: Status::Up,
        drained: true,
        health: Health::Warning,
        client: "shop",
        owner: "node-1",
        metadata: &metadata,
    };
    for (text, expected) in cases {
        assert_eq!(parse(text).matches(&subject), *expected, "{text}");
    }
}

#[track_caller]
fn parse(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{error}\n{}", error.pointer()))
}

#[track_caller]
fn canonical(text: &str, expected: &str) {
    let filter = parse(text);
    assert_eq!(filter.to_string(), expected);
    assert_eq!(parse(expected), filter);
}

#[test]
fn every_field_has_its_value() {
    check(&[
        (r#"id == "orders-1""#, true),
        (r#"service == "orders""#, true),
        (r#"locality == "aws.us-east-1.a""#, true),
        (r#"revision == "r7""#, true),
        (r#"client == "shop""#, true),
        (r#"owner == "node-1""#, true),
        (r#"meta.version == "v1""#, true),
        (r#"meta["a key"] == "1""#, true),
        (r#"id == "orders""#, false),
        ("drained", true),
        ("health == warning", true),
        ("health in (passing, critical)", false),
        ("routable", false),
        ("", true),
        (" \t\n", true),
    ]);
}

#[test]
fn equality_is_exact() {
    check(&[
        (r#"service == "Orders""#, false),
        (r#"service == "order*""#, false),
        (r#"service != "orders""#, false),
        (r#"service != "billing""#, true),
        ("service == 'orders'", true),
        (r#"service=="orders""#, true),
        (r#"meta.note == """#, true),
    ]);
}

#[test]
fn patterns_are_anchored() {
    check(&[
        (r#"locality matches "aws.us-east-*""#, true),
        (r#"locality matches "us-east""#, false),
        (r#"locality matches "*us-east*""#, true),
        (r#"locality not matches "gcp.*""#, true),
        (r#"locality not matches "aws.*""#, false),
        (r#"service matches "orders""#, true),
    ]);
}

#[test]
fn lists_are_exact_alternatives() {
    check(&[
        (r#"service in ("billing", "orders")"#, true),
        (r#"service in ("billing", "order*")"#, false),
        (r#"service not in ("billing")"#, true),
        (r#"service not in ("billing", 'orders')"#, false),
    ]);
}

#[test]
fn absent_metadata_equals_nothing() {
    check(&[
        (r#"meta.zone == """#, false),
        (r#"meta.zone != "x""#, true),
        (r#"meta.zone matches "*""#, false),
        (r#"meta.zone not matches "*""#, true),
        (r#"meta.zone in ("", "x")"#, false),
        (r#"meta.zone not in ("", "x")"#, true),
        ("exists meta.zone", false),
        ("not exists meta.zone", true),
        ("exists meta.note", true),
        (r#"exists meta["a key"]"#, true),
        (r#"not exists meta["a key"]"#, false),
    ]);
}

#[test]
fn status_is_bare_or_quoted() {
    check(&[
        ("status == up", true),
        (r#"status == "up""#, true),
        ("status != 'up'", false),
        ("status in (down, \"left\")", false),
        ("status not in (down, left)", true),
    ]);
}

#[test]
fn flags_are_bare_or_compared() {
    check(&[
        ("not drained", false),
        ("not routable", true),
        ("drained == true", true),
        ("drained == false", false),
        ("drained != true", false),
        ("drained != \"false\"", true),
        ("not drained == true", false),
        ("drained and status == up", true),
    ]);
}

#[test]
fn not_binds_tighter_than_and_tighter_than_or() {
    // The member is drained and not routable.
    check(&[
        ("drained or routable and routable", true),
        ("(drained or routable) and routable", false),
        ("routable and routable or drained", true),
        ("routable and (routable or drained)", false),
        ("not routable or drained and routable", true),
        ("not (routable or drained) and routable", false),
        ("not routable and drained", true),
        ("not (routable and drained)", true),
        ("not not drained", true),
        ("not (not (not routable))", true),
        (r#"not service == "orders" or drained"#, true),
        (r#"not (service == "orders" or drained)"#, false),
    ]);
}

#[test]
fn strings_have_escapes() {
    let metadata = BTreeMap::new();
    let subject = |service| Subject {
        id: "",
        service,
        locality: "",
        revision: "",
        status: Status::Down,
        drained: false,
        health: Health::Passing,
        client: "",
        owner: "",
        metadata: &metadata,
    };
    for (text, service) in [
        (r#"service == "a\"b""#, "a\"b"),
        (r#"service == 'a"b'"#, "a\"b"),
        (r"service == 'a\'b'", "a'b"),
        (r#"service == "a\\b""#, "a\\b"),
        (r#"service == "a\n\tb""#, "a\n\tb"),
        (r#"service == "\u{e9}\u{1F980}""#, "é🦀"),
        ("service == \"a\nb\"", "a\nb"),
    ] {
        let filter = parse(text);
        assert!(filter.matches(&subject(service)), "{text}");
        assert!(!filter.matches(&subject("other")), "{text}");
        assert_eq!(filter.service_literal(), Some(service));
        assert_eq!(parse(&filter.to_string()), filter, "{text}");
    }
}

#[test]
fn display_is_canonical() {
    canonical("", "");
    canonical(
        r#"service=='orders' and locality matches "aws.us-east-*"and meta.version!="v1""#,
        r#"service == "orders" and locality matches "aws.us-east-*" and meta.version != "v1""#,
    );
    canonical("drained or (routable and (drained or routable))", "drained or routable and (drained or routable)");
    canonical("((drained and routable) and drained)", "drained and routable and drained");
    canonical("not (drained and not (routable or status == up))", r#"not drained or routable or status == "up""#);
    canonical("not (drained or routable) and drained", "not drained and not routable and drained");
    canonical(r#"not service matches "o*""#, r#"service not matches "o*""#);
    canonical(r#"service matches "orders""#, r#"service == "orders""#);
    canonical(r#"not id in ("b", "a", "b")"#, r#"id not in ("a", "b")"#);
    canonical(r#"id in ("a")"#, r#"id == "a""#);
    canonical("status in (left, up)", r#"status in ("up", "left")"#);
    canonical("drained == false", "not drained");
    canonical(r#"exists meta["a.b-c_1"]"#, "exists meta.a.b-c_1");
    canonical(r#"not exists meta["a b"] or exists meta[""]"#, r#"not exists meta["a b"] or exists meta[""]"#);
    canonical(r#"meta["a..b"] == "\u{7}é\"\\""#, r#"meta["a..b"] == "\u{7}é\"\\""#);
}

#[test]
fn builders_equal_parsed_text() {
    assert_eq!(Filter::service("orders"), parse(r#"service == "orders""#));
    assert_eq!(Filter::service("or*"), parse(r#"service matches "or*""#));
    assert_eq!(Filter::locality("aws.*"), parse(r#"locality matches "aws.*""#));
    assert_eq!(Filter::revision("r1"), parse(r#"revision == "r1""#));
    assert_eq!(Filter::status(Status::Down), parse("status == down"));
    assert_eq!(Filter::metadata("a key", "*"), parse(r#"meta["a key"] matches "*""#));
    assert_eq!(Filter::all(), parse(""));
    assert_eq!(Filter::default(), Filter::all());
    assert_eq!("drained".parse::<Filter>(), Filter::parse("drained"));
}

#[test]
fn joining_equals_and() {
    let both = Filter::service("a").and(parse("drained or routable"));
    assert_eq!(both, parse(r#"service == "a" and (drained or routable)"#));
    assert_eq!(Filter::all().and(both.clone()).and(Filter::all()), both);
    assert_eq!(both.clone().and(parse("drained and routable")), parse(&format!("{both} and drained and routable")));
}

#[test]
fn the_service_literal_is_the_implied_service() {
    for (text, expected) in [
        ("", None),
        (r#"service == "a""#, Some("a")),
        (r#"service matches "a""#, Some("a")),
        (r#"service matches "a*""#, None),
        (r#"service != "a""#, None),
        (r#"not service != "a""#, Some("a")),
        (r#"service in ("a", "a")"#, Some("a")),
        (r#"service in ("a", "b")"#, None),
        (r#"drained and (routable or drained) and service == "a""#, Some("a")),
        (r#"service == "a" or drained"#, None),
        (r#"service == "a" and drained or routable and service == "a""#, Some("a")),
        (r#"service == "a" or service == "b""#, None),
        (r#"not (service != "a" or drained)"#, Some("a")),
        (r#"id == "a""#, None),
    ] {
        assert_eq!(parse(text).service_literal(), expected, "{text}");
    }
}

/// Moving `not` inwards must not increase the nesting of parentheses.
#[test]
fn canonical_text_nests_no_deeper() {
    for levels in [
        ["drained and (", "drained or ("],
        ["drained or (", "drained and ("],
        ["drained or not (", "drained or ("],
        ["not (drained and ", "not (drained or "],
        ["drained or drained and not (", "drained and drained or ("],
        ["not (drained or drained and ", "(drained or drained and "],
    ] {
        for end in ["routable", "routable == false", "drained and routable", "drained or routable"] {
            let open: String = levels.into_iter().cycle().take(NESTING_MAX).collect();
            let filter = parse(&format!("{open}{end}{}", ")".repeat(NESTING_MAX)));
            assert_eq!(parse(&filter.to_string()), filter);
        }
    }
}
