//! What is no answer, and what is asked.

use super::*;

fn key(name: &str) -> Key {
    Key::new(name)
}

#[test]
fn ranges_end_where_the_prefix_ends() {
    assert_eq!(end_of("a/"), b"a0");
    assert_eq!(end_of(""), b"\0");
    let list = |after: Option<&str>| {
        let (prefix, after) = (key("a/"), after.map(key));
        let request = Request::operation(&Op::List { prefix, after }, 9);
        String::from_utf8(request.body.unwrap().to_vec()).unwrap()
    };
    let from = |begin: &[u8]| {
        let (begin, end) = (base64(begin), base64(b"a0"));
        format!(r#"{{"key":"{begin}","range_end":"{end}","limit":"9"}}"#)
    };
    assert_eq!(list(None), from(b"a/"));
    assert_eq!(list(Some("a/b")), from(b"a/b\0"));
    assert_eq!(list(Some("A")), from(b"a/"));
}

#[test]
fn numbers_are_as_etcd_has_them() {
    let of = |text: &str| parse::<Number>(text.as_bytes()).map(|number| number.0);
    assert_eq!(of("7"), Some(7));
    assert_eq!(of(r#""18446744073709551615""#), Some(u64::MAX));
    for wrong in [
        "-1",
        "1.5",
        r#""-1""#,
        r#""""#,
        "null",
        "{}",
        "18446744073709551616",
    ] {
        assert_eq!(of(wrong), None, "{wrong}");
    }
}

#[test]
fn what_answers_something_else_is_no_answer() {
    let read = Op::Read { key: key("a") };
    let (value, expect) = (vec![], None);
    let write = Op::Write {
        key: key("a"),
        value,
        expect,
    };
    let list = Op::List {
        prefix: key("a"),
        after: Some(key("ab")),
    };
    let register = |name: &str, version: &str| {
        format!(
            r#"{{"key":"{}","mod_revision":{version}}}"#,
            base64(name.as_bytes())
        )
    };
    let (one, other) = (register("a", "1"), register("b", "1"));
    let range = |registers: &[&str]| format!(r#"{{"kvs":[{}]}}"#, registers.join(","));
    let failed = |text: &str| format!(r#"{{"responses":[{{"response_range":{text}}}]}}"#);
    for (op, text) in [
        (&read, range(&[&other])),
        (&read, range(&[&one, &one])),
        (&read, range(&[&register("a", "0")])),
        (&read, range(&[&register("a", "9223372036854775808")])),
        (
            &read,
            range(&[&one.replace("\"mod", "\"value\":\"?\",\"mod")]),
        ),
        (&read, "5".to_owned()),
        (&write, "{}".to_owned()),
        (&write, failed(&range(&[&other]))),
        (&write, r#"{"succeeded":true}"#.to_owned()),
        (&write, r#"{"responses":[{"response_put":{}}]}"#.to_owned()),
        (&list, range(&[&one])),
        (&list, range(&[&register("ad", "1"), &register("ac", "1")])),
        (&list, range(&[&register("ab", "1")])),
        (&list, range(&[&other])),
    ] {
        assert_eq!(answer(op, text.as_bytes()), None, "{text}");
    }
    let conflict = failed(&range(&[&one]));
    assert!(answer(&write, conflict.as_bytes()).is_some());
    // Others' keys are passed over.
    let text = range(&[
        &register("a\u{e9}", "1"),
        &register("a b", "1"),
        &register("ac", "1"),
    ]);
    let Some((
        _,
        Reply::Page {
            entries,
            more: false,
        },
    )) = answer(&list, text.as_bytes())
    else {
        panic!("a page");
    };
    assert_eq!(entries[0].0, key("ac"));
    assert_eq!(entries.len(), 1);
}

#[test]
fn lists_without_an_end_are_none() {
    let text = format!(r#"{{"kvs":[{}{{}}]}}"#, "{},".repeat(LONGEST_LIST));
    assert!(parse::<Range>(text.as_bytes()).is_none());
    let text = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse::<Range>(text.as_bytes()).is_none());
}
