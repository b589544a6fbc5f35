//! The configuration file: what it may say, and where and why it is refused.

use std::num::NonZeroU32;
use std::time::Duration;

use distlock::{Config, ConfigError};
use distlock_agent::protocol::{
    Algorithm, ElectionAlgorithm, Failure, LockName, LockSpec, NodeId, Priority,
};

const SMALL: &str = r#"
[group]
name = "shop"

[[member]]
id = 1
address = "udp:127.0.0.1:7401"

[[member]]
id = 2
address = "udp:127.0.0.1:7402"
"#;

fn id(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

#[test]
fn little_is_needed() {
    let config = Config::parse(SMALL).unwrap();
    let settings = config.settings();
    assert_eq!(settings.group, "shop");
    assert_eq!(settings.lease, Duration::from_secs(5));
    assert_eq!(settings.algorithm, Algorithm::RicartAgrawala);
    assert!(settings.locks.is_empty());
    assert_eq!(config.voters(), [id(1), id(2)]);
    let node = config.node(2).unwrap();
    assert_eq!(node.me(), id(2));
    assert_eq!(node.members().len(), 2);
    assert_eq!(node.members()[&id(1)].to_string(), "udp:127.0.0.1:7401");
}

/// A relative path begins where the configuration is, so that it works from everywhere.
#[test]
fn a_key_lets_datagrams_leave_the_host() {
    let remote = SMALL.replace("127.0.0.1", "10.0.0.1");
    assert!(Config::parse(&remote).is_err());
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("shop.toml");
    for (key_file, expected) in [
        ("shop.key", root.path().join("shop.key")),
        ("/etc/shop.key", "/etc/shop.key".into()),
        (
            "$CREDENTIALS_DIRECTORY/key",
            "$CREDENTIALS_DIRECTORY/key".into(),
        ),
    ] {
        std::fs::write(&path, format!("key_file = {key_file:?}\n{remote}")).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.key_file(), Some(&*expected));
        assert_eq!(config.node(1).unwrap().key_file(), Some(&*expected));
    }
}

#[test]
fn everything_can_be_said() {
    let config = Config::parse(
        r#"
        lease = "1500ms"
        algorithm = "bakery"
        failure = "quorum"
        insecure = true
        voters = [7, 65535]
        group = { name = "Ünïcode / group" }
        lock = [
            { name = "printer", algorithm = "token-ring" },
            { name = "licences", permits = 4 },
            { name = "one", algorithm = "semaphore", permits = 1 },
            { name = "\u00ff", algorithm = "token-ring-requests" },
            { name = "fair", algorithm = "carvalho-roucairol", priority = "least-recent" },
            { name = "stamped", algorithm = "ricart-agrawala", priority = "lamport" },
        ]
        [[member]]
        address = "udp:[fd00::1]:7400"
        id = 65535
        [[member]]
        address = "udp:[::1]:1"
        id = 7
        "#,
    )
    .unwrap();
    let settings = config.settings();
    assert_eq!(settings.lease, Duration::from_millis(1500));
    assert_eq!(settings.algorithm, Algorithm::Bakery);
    assert_eq!(config.voters(), [id(7), id(65535)]);
    let lock = |name: &str| settings.locks[&LockName::new(name).unwrap()];
    assert_eq!(lock("printer"), LockSpec::exclusive(Algorithm::TokenRing));
    assert_eq!(
        lock("licences"),
        LockSpec::counting(NonZeroU32::new(4).unwrap())
    );
    assert_eq!(lock("one"), LockSpec::exclusive(Algorithm::Semaphore));
    assert_eq!(lock("ÿ"), LockSpec::exclusive(Algorithm::TokenRingRequests));
    assert_eq!(lock("fair").algorithm, Algorithm::CarvalhoRoucairol);
    assert_eq!(lock("fair").priority, Priority::LeastRecent);
    let stamped = LockSpec::exclusive(Algorithm::RicartAgrawala);
    assert_eq!(lock("stamped"), stamped);
}

#[test]
fn priorities_have_a_default() {
    let priority = |text: &str| {
        let lock = "[[lock]]\nname = \"x\"\nalgorithm = \"carvalho-roucairol\"";
        let config = Config::parse(&format!("{SMALL}\n{lock}\n{text}")).unwrap();
        config.settings().locks[&LockName::new("x").unwrap()].priority
    };
    assert_eq!(priority(""), Priority::Lamport);
    for each in Priority::ALL {
        assert_eq!(priority(&format!("priority = \"{each}\"")), each);
    }
}

#[test]
fn leases_have_units_and_bounds() {
    let lease = |text: &str| Config::parse(&format!("lease = {text}\n{SMALL}"));
    for (text, ms) in [
        ("\"100ms\"", 100),
        ("\"1s\"", 1_000),
        ("\"1m\"", 60_000),
        ("\"60m\"", 3_600_000),
    ] {
        assert_eq!(
            lease(text).unwrap().settings().lease,
            Duration::from_millis(ms)
        );
    }
    for text in [
        "\"\"",
        "\"5\"",
        "\"s\"",
        "\"5 s\"",
        "\"1.5s\"",
        "\"-5s\"",
        "\"5h\"",
        "\"99ms\"",
        "\"0s\"",
        "\"61m\"",
        "\"99999999999999999999s\"",
        "\"18446744073709551615m\"",
        "5",
    ] {
        assert!(lease(text).is_err(), "{text}");
    }
}

#[test]
fn what_silence_means_is_chosen() {
    let failure = |text: &str| Config::parse(&format!("failure = {text}\n{SMALL}"));
    let chosen = failure("\"presume-failed\"").unwrap();
    assert_eq!(chosen.settings().failure, Failure::PresumeFailed);
    let default = Config::parse(SMALL).unwrap().settings().failure;
    assert_eq!(failure("\"quorum\"").unwrap().settings().failure, default);
    assert_ne!(default, Failure::PresumeFailed);
    assert!(failure("\"unanimity\"").is_err(), "for tests alone");
}

#[test]
fn lock_delays_have_units_and_a_bound() {
    let delay = |text: &str| Config::parse(&format!("lock_delay = {text}\n{SMALL}"));
    let none = Config::parse(SMALL).unwrap();
    assert_eq!(none.settings().lock_delay, Duration::ZERO);
    for (text, ms) in [("\"0s\"", 0), ("\"15s\"", 15_000), ("\"1m\"", 60_000)] {
        let config = delay(text).unwrap();
        assert_eq!(
            config.settings().lock_delay,
            Duration::from_millis(ms),
            "{text}"
        );
    }
    for text in ["\"\"", "\"15\"", "\"61s\"", "\"-1s\"", "15"] {
        assert!(delay(text).is_err(), "{text}");
    }
}

#[test]
fn elections_have_a_default() {
    let election = |text: &str| {
        let config = Config::parse(&format!("{text}\n{SMALL}")).unwrap();
        config.settings().election
    };
    assert_eq!(election(""), ElectionAlgorithm::Bully);
    for algorithm in ElectionAlgorithm::ALL {
        assert_eq!(election(&format!("election = \"{algorithm}\"")), algorithm);
    }
}

/// Each refusal: the text, the line it must name, and words the reason must have.
#[test]
fn refusals_name_line_and_reason() {
    let member = |id: &str, address: &str| {
        format!("[group]\nname = \"g\"\n[[member]]\nid = {id}\naddress = {address}\n")
    };
    let small = SMALL.trim_start();
    let table: &[(String, usize, &[&str])] = &[
        (String::new(), 1, &["group"]),
        (
            "[group]\nname = \"g\"\n".into(),
            1,
            &["no members", "[[member]]"],
        ),
        (format!("group\n{small}"), 1, &[]),
        (format!("\nleas = \"5s\"\n{small}"), 2, &["leas", "lease"]),
        (format!("{small}port = 7"), 11, &["port", "address"]),
        ("[group]\nname = \"g\"\nid = 1\n".into(), 3, &["id", "name"]),
        (
            format!("{small}[[lock]]\nname = \"x\"\npermit = 3\n"),
            13,
            &["permit"],
        ),
        (format!("{small}[group]\nname = \"h\"\n"), 11, &["group"]),
        (
            "[group]\nname = \"\"\n[[member]]\nid = 1\naddress = \"unix:/x\"".into(),
            2,
            &["1 to 255"],
        ),
        (format!("lease = \"5\"\n{small}"), 1, &["\"5\"", "\"5s\""]),
        (
            format!("#\nlease = 5\n{small}"),
            2,
            &["lease = 5 has no unit", "\"5s\""],
        ),
        (format!("lease = 0.5\n{small}"), 1, &["\"500ms\""]),
        (
            format!("lock_delay = 2\n{small}"),
            1,
            &["lock_delay = \"2s\""],
        ),
        (format!("lease = true\n{small}"), 1, &["string", "\"5s\""]),
        (format!("lease = \"2h\"\n{small}"), 1, &["unit"]),
        (format!("lease = \"1ms\"\n{small}"), 1, &["100ms"]),
        (
            format!("lock_delay = \"2m\"\n{small}"),
            1,
            &["lock_delay", "60s"],
        ),
        (
            format!("\nlock_delay = \"long\"\n{small}"),
            2,
            &["lock_delay", "\"long\""],
        ),
        (
            format!("\nelection = \"paxos\"\n{small}"),
            2,
            &["paxos", "bully", "ring", "chang-roberts"],
        ),
        (
            format!("algorithm = \"dekker\"\n{small}"),
            1,
            &["dekker", "ricart-agrawala"],
        ),
        (
            format!("algorithm = \"voting\"\n{small}"),
            1,
            &["voting", "quorum"],
        ),
        (
            format!("algorithm = \"kernel\"\n{small}"),
            1,
            &["kernel", "local group"],
        ),
        (
            format!("failure = \"none\"\n{small}"),
            1,
            &["none", "quorum", "presume-failed"],
        ),
        (
            format!("key_file = \"\"\n{small}"),
            1,
            &["key_file", "keygen"],
        ),
        (
            format!("insecure = true\nkey_file = \"/k\"\n{small}"),
            2,
            &["key_file", "insecure", "remove one"],
        ),
        (format!("insecure = 1\n{small}"), 1, &["boolean"]),
        (member("0", "\"unix:/x\""), 4, &["0", "65535"]),
        (member("-1", "\"unix:/x\""), 4, &["-1", "65535"]),
        (member("65536", "\"unix:/x\""), 4, &["65536", "65535"]),
        (member("\"1\"", "\"unix:/x\""), 4, &["an integer"]),
        (
            member("1", "\"127.0.0.1:7400\""),
            5,
            &["udp:", "127.0.0.1:7400"],
        ),
        (member("1", "\"udp:localhost:7400\""), 5, &["localhost"]),
        (member("1", "\"udp:127.0.0.1\""), 5, &["udp:127.0.0.1"]),
        (member("1", "\"udp:127.0.0.1:0\""), 5, &["port"]),
        (member("1", "\"unix:relative\""), 5, &["absolute"]),
        (
            member("1", "\"udp:10.0.0.1:7400\""),
            5,
            &["10.0.0.1:7400", "key_file", "insecure = true"],
        ),
        (
            member("1", "\"udp:[fd00::1]:7400\""),
            5,
            &["insecure = true"],
        ),
        (
            format!("insecure = false\n{}", member("1", "\"udp:10.0.0.1:1\"")),
            6,
            &["insecure"],
        ),
        (
            format!("multicast = \"239.255.77.1:7400\"\n{small}"),
            1,
            &["multicast", "udp:"],
        ),
        (
            format!("multicast = \"udp:10.0.0.1:7400\"\n{small}"),
            1,
            &["10.0.0.1 is no multicast address", "239.255.77.1"],
        ),
        (
            format!("multicast = \"udp:224.0.0.5:7400\"\n{small}"),
            1,
            &["routing"],
        ),
        (
            format!("multicast = \"udp:239.255.77.1:0\"\n{small}"),
            1,
            &["port"],
        ),
        (
            format!("\nmulticast = \"udp:[ff05::4d01]:7400\"\n{small}"),
            2,
            &["udp over IPv4", "[ff05::4d01]:7400"],
        ),
        (
            format!(
                "multicast = \"udp:239.255.77.1:7400\"\n{}",
                member("1", "\"udp:[::1]:7400\"")
            ),
            1,
            &["udp over IPv6"],
        ),
        (
            format!(
                "multicast = \"udp:239.255.77.1:7400\"\n{}",
                member("1", "\"unix:/run/x\"")
            ),
            1,
            &["unix", "remove the key"],
        ),
        (
            "[group]\nname = \"g\"\n[[member]]\nid = 1\n".into(),
            3,
            &["address"],
        ),
        (
            format!("{small}[[member]]\nid = 1\naddress = \"udp:127.0.0.1:9\""),
            12,
            &["1", "twice"],
        ),
        (
            format!("{small}[[member]]\nid = 3\naddress = \"udp:127.0.0.1:7402\""),
            13,
            &["2 and 3", "same address"],
        ),
        (
            format!("{small}[[member]]\nid = 3\naddress = \"unix:/x\""),
            13,
            &["unix", "udp", "reach"],
        ),
        (
            format!("{small}[[member]]\nid = 3\naddress = \"udp:[::1]:3\""),
            13,
            &["IPv6", "IPv4", "reach"],
        ),
        (
            format!("{small}[[lock]]\nname = \"\"\nalgorithm = \"bakery\"\n"),
            12,
            &["empty"],
        ),
        (
            format!("{small}[[lock]]\nname = \"a\\u0000b\"\npermits = 1\n"),
            12,
            &["NUL"],
        ),
        (
            format!(
                "{small}[[lock]]\nname = \"{}\"\npermits = 1\n",
                "x".repeat(256)
            ),
            12,
            &["256"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\n"),
            12,
            &["algorithm", "permits"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\npermits = 0\n"),
            13,
            &["0 permits"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\npermits = 4294967296\n"),
            13,
            &["4294967295"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\nalgorithm = \"bakery\"\npermits = 2\n"),
            14,
            &["bakery", "semaphore"],
        ),
        (
            format!(
                "{small}[[lock]]\nname = \"x\"\nalgorithm = \"carvalho-roucairol\"\n\
                 priority = \"first\"\n"
            ),
            14,
            &["first", "lamport, static, least-frequent or least-recent"],
        ),
        (
            format!(
                "{small}[[lock]]\nname = \"x\"\nalgorithm = \"ricart-agrawala\"\n\
                 priority = \"static\"\n"
            ),
            14,
            &[
                "static",
                "unsafe with ricart-agrawala",
                "carvalho-roucairol",
            ],
        ),
        (
            format!(
                "{small}[[lock]]\nname = \"x\"\nalgorithm = \"bakery\"\n\
                 priority = \"lamport\"\n"
            ),
            14,
            &["bakery", "no priority", "carvalho-roucairol"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\npermits = 2\npriority = \"static\"\n"),
            14,
            &["semaphore", "no priority"],
        ),
        (format!("priority = \"static\"\n{small}"), 1, &["priority"]),
        (
            format!(
                "{small}[[lock]]\nname = \"x\"\npermits = 2\n[[lock]]\nname = \"x\"\npermits = 2\n"
            ),
            15,
            &["x", "twice"],
        ),
        (
            format!("{small}[[lock]]\nname = \"x\"\nalgorithm = \"voting\"\n"),
            13,
            &["voting", "quorum"],
        ),
        (format!("voters = []\n{small}"), 1, &["voters", "1 to 7"]),
        (format!("voters = [1,\n3]\n{small}"), 2, &["3", "no member"]),
        (format!("voters = [1,\n2,\n1]\n{small}"), 3, &["1", "twice"]),
    ];
    let failures: Vec<_> = table
        .iter()
        .filter_map(|row| is_refused(row).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn is_refused((text, line, words): &(String, usize, &[&str])) -> Result<(), String> {
    let error = match Config::parse(text) {
        Err(error) => error.to_string(),
        Ok(_) => return Err(format!("accepted:\n{text}")),
    };
    let is_right = error.starts_with(&format!("configuration:{line}: "))
        && words.iter().all(|word| error.contains(word))
        && !error.contains('\n');
    is_right
        .then_some(())
        .ok_or_else(|| format!("{error}\n\tshould name {line} and {words:?}"))
}

#[test]
fn multicast_addresses_are_of_the_members_kind() {
    assert_eq!(Config::parse(SMALL).unwrap().multicast(), None);
    let config = Config::parse(&format!("multicast = \"udp:239.255.77.1:7400\"\n{SMALL}"));
    let expected = "udp:239.255.77.1:7400".parse().unwrap();
    let config = config.unwrap();
    assert_eq!(config.multicast(), Some(expected));
    assert_eq!(config.node(1).unwrap().multicast(), Some(expected));
}

#[test]
fn at_most_seven_vote() {
    let mut text = SMALL.to_owned();
    for id in 3..=9 {
        text += &format!("[[member]]\nid = {id}\naddress = \"udp:127.0.0.1:740{id}\"\n");
    }
    let lowest: Vec<_> = (1..=7).map(id).collect();
    assert_eq!(Config::parse(&text).unwrap().voters(), lowest);
    assert!(Config::parse(&format!("voters = [1,2,3,4,5,6,7,8]\n{text}")).is_err());
    assert_eq!(
        Config::parse(&format!("voters = [9,3]\n{text}"))
            .unwrap()
            .voters(),
        [id(3), id(9)]
    );
}

#[test]
fn a_file_is_named_in_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("distlock.toml");
    let shown = path.display().to_string();
    let error = Config::load(&path).unwrap_err();
    assert!(matches!(&error, ConfigError::Read { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound));
    assert!(error.to_string().contains(&shown), "{error}");
    std::fs::write(&path, "\nx = 1\n").unwrap();
    let error = Config::load(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{shown}:2: ")), "{error}");
    std::fs::write(&path, [0xff]).unwrap();
    assert!(
        Config::load(&path)
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
    std::fs::write(&path, SMALL).unwrap();
    let config = Config::load(&path).unwrap();
    let error = config.node(3).unwrap_err().to_string();
    assert!(
        error.contains("no member 3") && error.contains("1, 2"),
        "{error}"
    );
    assert!(config.node(0).is_err());
}

#[test]
fn each_member_has_its_own_state() {
    let config = Config::parse(SMALL).unwrap();
    let directory = |id| config.node(id).unwrap().with_state_dir("/base").state_dir();
    assert_eq!(directory(1).to_str(), Some("/base/shop-1"));
    assert_eq!(directory(2).to_str(), Some("/base/shop-2"));
    let odd = Config::parse(&SMALL.replace("shop", "../a/b")).unwrap();
    let odd = odd.node(1).unwrap().with_state_dir("/base").state_dir();
    assert_eq!(odd.parent().and_then(|base| base.to_str()), Some("/base"));
}
