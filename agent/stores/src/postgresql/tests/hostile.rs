//! Servers that are none, or want what they should not have.

use super::*;
use crate::postgresql::wire::MAX_MESSAGE;

/// A certificate that nobody has the key of.
const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBbTCCAROgAwIBAgIUfw0o8ojbeUA+m6t2MyXiUEZVCmYwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBYTAeFw0yNjExMjcxNTIyMzNaFw0yNjExMjkxNTIyMzNaMAwx
CjAIBgNVBAMMAWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASuKm5J+kI0Gwit
BfTS2N+XF/IMRUxNlZoNNlqC48KiR+vF2p1Y8Sf1hqzFh+UdqeDNaEGQZ2nU6wC4
J8vCHz+fo1MwUTAdBgNVHQ4EFgQUqXyc/kFeh8DSrQEweSXttOJ7yN4wHwYDVR0j
BBgwFoAUqXyc/kFeh8DSrQEweSXttOJ7yN4wDwYDVR0TAQH/BAUwAwEB/zAKBggq
hkjOPQQDAgNIADBFAiEA6z3AhLkWqGakhUB3OMkPWQE5Ewhh2MEgHfEX01UqaEIC
IH5KiBEFxKfuYwOFmIOuDvymWhnEv4kmhVTju9AGHfMP
-----END CERTIFICATE-----
";

#[test]
fn what_is_no_postgresql_is_left() {
    let whole = message(b'Z', b"T");
    let rows = [
        preamble(),
        statement(&[row(&[Some("a"), Some("b")])]),
        ready(),
    ]
    .concat();
    let twice = [
        preamble(),
        statement(&[]),
        statement(&[]),
        statement(&[]),
        statement(&[]),
    ];
    for (bytes, why) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "of 1414811695 bytes",
        ),
        (vec![b'D', 0, 0, 0, 3], "no PostgreSQL"),
        (vec![b'D', 0x7f, 0xff, 0xff, 0xff], "of 2147483647 bytes"),
        (vec![b'D', 0xff, 0xff, 0xff, 0xff], "no PostgreSQL"),
        (message(b'R', &[0; 4]), "out of turn"),
        (message(b'G', &[0; 3]), "out of turn"),
        (message(b'?', b""), "no PostgreSQL"),
        (message(b'D', &[0, 1, 0, 0, 0, 9]), "no PostgreSQL"),
        (whole, "out of turn"),
        (rows, "something else than was asked"),
        (twice.concat(), "out of turn"),
        ([ready(), ready()].concat(), "something else than was asked"),
        ([value("{}", "5"), ready()].concat(), "what was not asked"),
        (value("{}", "x"), "something else than was asked"),
    ] {
        let mut client = Client::up();
        client.ask(1, read());
        client.hear(&bytes);
        let said = client.down();
        assert!(said.contains(why), "{said}, not {why}");
    }
    // An error that nothing led to.
    let mut client = Client::up();
    client.hear(&error("ERROR", "XX000"));
    assert!(client.down().contains("XX000"));
}

#[test]
fn a_message_and_an_answer_have_bounds() {
    let mut client = Client::up();
    client.ask(1, read());
    let header = |length: usize| {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        [b"D", &length[..]].concat()
    };
    client.hear(&header(MAX_MESSAGE));
    assert_eq!(client.closed, []);
    let mut client = Client::up();
    client.ask(1, read());
    client.hear(&header(MAX_MESSAGE + 1));
    assert!(client.down().contains("are taken"));
    let mut client = Client::up();
    client.ask(1, read());
    let long = row(&[Some(&"x".repeat(MAX_MESSAGE / 2))]);
    for _ in 0..20 {
        client.hear(&long);
    }
    assert!(client.closed.contains(&client.stream));
}

#[test]
fn tls_is_asked_for_and_nothing_may_come_before_it() {
    let sealed = || {
        let mut options = options(&["a"]);
        options.tls = Some(crate::Tls::new(Some(AUTHORITY.as_bytes()), None).unwrap());
        Client::connecting(options)
    };
    let request = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    for (bytes, why) in [
        (b"N".to_vec(), "no TLS"),
        (b"SR".to_vec(), "before TLS began"),
        (b"H".to_vec(), "no PostgreSQL"),
        (
            [b"S".to_vec(), error("ERROR", "0")].concat(),
            "before TLS began",
        ),
    ] {
        let mut client = sealed();
        assert_eq!(client.sent, request);
        client.hear(&bytes);
        let said = client.down();
        assert!(said.contains(why), "{said}");
    }
    let mut client = sealed();
    client.sent.clear();
    client.hear(b"S");
    // A handshake's first record, and not a word of sign-in.
    assert_eq!(client.sent[..2], [22, 3]);
    assert!(!client.sent.windows(4).any(|part| part == b"user"));
    client.hear(b"R\0\0\0\x08\0\0\0\0");
    assert!(client.down().contains("TLS"));
    // At a Unix socket there is none.
    let mut options = options(&["a"]);
    options.tls = Some(crate::Tls::new(Some(AUTHORITY.as_bytes()), None).unwrap());
    options.hosts = vec![Host::Unix("/run/postgresql/.s.PGSQL.5432".to_owned())];
    let client = Client::connecting(options);
    assert!(client.sent.windows(4).any(|part| part == b"user"));
}

#[test]
fn ways_of_signing_in_that_show_the_password_are_refused() {
    for (kind, why) in [
        (3, "in clear"),
        (5, "MD5"),
        (7, "GSSAPI"),
        (9, "SSPI"),
        (2, "no more"),
        (11, "out of turn"),
        (12, "out of turn"),
        (99, "no PostgreSQL"),
    ] {
        let mut options = options(&["a"]);
        options.password = Some("x".to_owned().into());
        let mut client = Client::connecting(options);
        client.sent.clear();
        client.hear(&message(
            b'R',
            &[0, 0, 0, kind, 1, 2, 3, 4][..if kind == 5 { 8 } else { 4 }],
        ));
        let said = client.down();
        assert!(said.contains(why), "{said}");
        assert!(client.sent.is_empty());
    }
    let sasl = |mechanisms: &str| {
        let body = [&[0, 0, 0, 10], mechanisms.as_bytes(), b"\0\0"].concat();
        message(b'R', &body)
    };
    let mut signing = options(&["a"]);
    signing.password = Some("x".to_owned().into());
    let mut client = Client::connecting(signing);
    client.hear(&sasl("SCRAM-SHA-256-PLUS\0SCRAM-SHA-256"));
    assert!(
        client
            .sent
            .windows(14)
            .any(|part| part == b"SCRAM-SHA-256\0")
    );
    // Let in without the proof that the server knows the password, too.
    client.hear(&message(b'R', &[0; 4]));
    assert!(client.down().contains("did not prove"));
    let mut client = Client::connecting(options(&["a"]));
    client.hear(&sasl("SCRAM-SHA-512"));
    assert!(client.down().contains("SCRAM-SHA-256"));
    let mut client = Client::connecting(options(&["a"]));
    client.hear(&sasl("SCRAM-SHA-256"));
    assert!(client.down().contains("password_file"));
}

/// Says anything at all, with a liking for what is nearly right.
#[test]
fn a_server_that_says_anything_breaks_nothing() {
    let mut chance = Chance::new(5);
    let mut right = welcome("77");
    right.push(value("{}", "5"));
    right.push(told(5, "distlock/g/lock/k"));
    right.push([preamble(), error("ERROR", "40001"), ready()].concat());
    for _ in 0..20_000 {
        let mut client = Client::connecting(options(&["a"]));
        if chance.number_below(2) == 0 {
            client = Client::up();
            client.store.interest(at(0), &BTreeSet::from([key()]));
            client.ask(1, read());
            client.ask(2, write(Some(1)));
        }
        for _ in 0..chance.number_below(5) {
            let which = chance.number_below(right.len() as u64) as usize;
            let mut bytes = right[which].clone();
            for _ in 0..chance.number_below(3) {
                let at = chance.number_below(bytes.len() as u64) as usize;
                match chance.number_below(3) {
                    0 => bytes[at] = chance.next_u64() as u8,
                    1 => bytes.truncate(at + 1),
                    _ => drop(bytes.remove(at)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            client.hear(&bytes);
        }
        let answered = client.events.iter();
        let answered = answered.filter(|event| matches!(event, StoreEvent::Reply(OpId(1), _)));
        assert!(answered.count() <= 1);
    }
}
