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
    assert_eq!(settings.algorithm, Algorithm::Manager);
    assert!(settings.locks.is_empty());
    assert_eq!(config.voters(), [id(1), id(2)]);
    let node = config.node(2).unwrap();
    assert_eq!(node.me(), id(2));
    assert_eq!(node.members().len(), 2);
    assert_eq!(node.members()[&id(1)].to_string(), "udp:127.0.0.1:7401");
}

#[test]
fn a_profile_is_a_lease() {
    let read = |lines: &str| Config::parse(&format!("{lines}\n{SMALL}"));
    let lease = |lines: &str| read(lines).unwrap().settings().lease.as_secs();
    let profiles = [("fast", 1), ("lan", 5), ("cloud", 15), ("wan", 30)];
    for (name, secs) in profiles {
        assert_eq!(lease(&format!("profile = {name:?}")), secs);
    }
    assert_eq!(lease("profile = \"wan\"\nlease = \"7s\""), 7);
    let error = read("lease = \"7s\"\nprofile = \"Cloud\"")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(":2:") && error.contains("\"cloud\""),
        "{error}"
    );
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
    let lease = |text: &str| Config::parse(&format!("lease = \"{text}\"\n{SMALL}"));
    for (text, ms) in [
        ("100ms", 100),
        ("1s", 1_000),
        ("1m", 60_000),
        ("60m", 3_600_000),
    ] {
        let config = lease(text).unwrap();
        assert_eq!(config.settings().lease, Duration::from_millis(ms));
    }
    let wrong = [
        "", "5", "s", "5 s", "1.5s", "-5s", "5h", "99ms", "0s", "61m",
    ];
    let too_long = ["99999999999999999999s", "18446744073709551615m"];
    for text in wrong.into_iter().chain(too_long) {
        assert!(lease(text).is_err(), "{text}");
    }
    assert!(Config::parse(&format!("lease = 5\n{SMALL}")).is_err());
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

/// It is read by threads of programs that may have little room.
#[test]
fn what_is_nested_takes_little_of_the_stack() {
    let (open, close) = ("[".repeat(16), "]".repeat(16));
    let parts = "a.".repeat(15);
    let texts = [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {open}{close}"),
        format!("a = {}1{}", "{a = ".repeat(16), "}".repeat(16)),
        format!("{parts}a = {open}{close}"),
        format!("[{parts}a]\na = {open}{close}"),
        format!("[[{parts}a]]\na.a = {open}{close}"),
        (1..6)
            .map(|n| format!("[[{}a]]\n", "a.".repeat(n)))
            .collect(),
    ];
    let reader = std::thread::Builder::new().stack_size(256 << 10);
    let refused = move || texts.iter().all(|text| Config::parse(text).is_err());
    assert!(reader.spawn(refused).unwrap().join().unwrap());
}

/// What is refused: the line that it names, the text, with `;` for its line ends, and words of the
/// reason.
const REFUSALS: &str = r#"
1 EMPTY => group
1 [group] ; name = "g" => no members | [[member]]
1 group ; SMALL =>
2  ; leas = "5s" ; SMALL => leas | lease
11 SMALL ; port = 7 => port | address
3 [group] ; name = "g" ; id = 1 => id | name
13 SMALL ; [[lock]] ; name = "x" ; permit = 3 => permit
11 SMALL ; [group] ; name = "h" => group
2 [group] ; name = "" ; [[member]] ; id = 1 ; address = "unix:/x" => 1 to 255
1 lease = "5" ; SMALL => "5" | "5s"
2 # ; lease = 5 ; SMALL => lease = 5 has no unit | "5s"
1 lease = 0.5 ; SMALL => "500ms"
1 lock_delay = 2 ; SMALL => lock_delay = "2s"
1 lease = true ; SMALL => string | "5s"
1 lease = "2h" ; SMALL => unit
1 lease = "1ms" ; SMALL => 100ms
1 lock_delay = "2m" ; SMALL => lock_delay | 60s
2  ; lock_delay = "long" ; SMALL => lock_delay | "long"
2  ; election = "paxos" ; SMALL => paxos | bully | ring | chang-roberts
1 algorithm = "dekker" ; SMALL => dekker | ricart-agrawala
1 algorithm = "voting" ; SMALL => voting | quorum
1 algorithm = "kernel" ; SMALL => kernel | local group
1 failure = "none" ; SMALL => none | quorum | presume-failed
1 key_file = "" ; SMALL => key_file | keygen
2 insecure = true ; key_file = "/k" ; SMALL => key_file | insecure | remove one
1 insecure = 1 ; SMALL => boolean
4 GROUP ; id = 0 ; address = "unix:/x" => 0 | 65535
4 GROUP ; id = -1 ; address = "unix:/x" => -1 | 65535
4 GROUP ; id = 65536 ; address = "unix:/x" => 65536 | 65535
4 GROUP ; id = "1" ; address = "unix:/x" => an integer
5 GROUP ; id = 1 ; address = "127.0.0.1:7400" => udp: | 127.0.0.1:7400
5 GROUP ; id = 1 ; address = "udp:localhost:7400" => localhost
5 GROUP ; id = 1 ; address = "udp:127.0.0.1" => udp:127.0.0.1
5 GROUP ; id = 1 ; address = "udp:127.0.0.1:0" => port
5 GROUP ; id = 1 ; address = "unix:relative" => absolute
5 GROUP ; id = 1 ; address = "udp:10.0.0.1:7400" => 10.0.0.1:7400 | key_file | insecure = true
5 GROUP ; id = 1 ; address = "udp:[fd00::1]:7400" => insecure = true
6 insecure = false ; GROUP ; id = 1 ; address = "udp:10.0.0.1:1" => insecure
1 multicast = "239.255.77.1:7400" ; SMALL => multicast | udp:
1 multicast = "udp:10.0.0.1:7400" ; SMALL => 10.0.0.1 is no multicast address | 239.255.77.1
1 multicast = "udp:224.0.0.5:7400" ; SMALL => routing
1 multicast = "udp:239.255.77.1:0" ; SMALL => port
2  ; multicast = "udp:[ff05::4d01]:7400" ; SMALL => udp over IPv4 | [ff05::4d01]:7400
1 multicast = "udp:239.255.77.1:7400" ; GROUP ; id = 1 ; address = "udp:[::1]:7400" => udp over IPv6
1 multicast = "udp:239.255.77.1:7400" ; GROUP ; id = 1 ; address = "unix:/run/x" => unix | remove the key
3 GROUP ; id = 1 => address
12 SMALL ; [[member]] ; id = 1 ; address = "udp:127.0.0.1:9" => 1 | twice
13 SMALL ; [[member]] ; id = 3 ; address = "udp:127.0.0.1:7402" => 2 and 3 | same address
13 SMALL ; [[member]] ; id = 3 ; address = "unix:/x" => unix | udp | reach
13 SMALL ; [[member]] ; id = 3 ; address = "udp:[::1]:3" => IPv6 | IPv4 | reach
12 SMALL ; [[lock]] ; name = "" ; algorithm = "bakery" => empty
12 SMALL ; [[lock]] ; name = "a\u0000b" ; permits = 1 => NUL
12 SMALL ; [[lock]] ; name = "LONG" ; permits = 1 => 256
12 SMALL ; [[lock]] ; name = "x" => algorithm | permits
13 SMALL ; [[lock]] ; name = "x" ; permits = 0 => 0 permits
13 SMALL ; [[lock]] ; name = "x" ; permits = 4294967296 => 4294967295
14 SMALL ; [[lock]] ; name = "x" ; algorithm = "bakery" ; permits = 2 => bakery | manager
14 SMALL ; [[lock]] ; name = "x" ; algorithm = "carvalho-roucairol" ; priority = "first" => first | lamport, static, least-frequent or least-recent
14 SMALL ; [[lock]] ; name = "x" ; algorithm = "ricart-agrawala" ; priority = "static" => static | unsafe with ricart-agrawala | carvalho-roucairol
14 SMALL ; [[lock]] ; name = "x" ; algorithm = "bakery" ; priority = "lamport" => bakery | no priority | carvalho-roucairol
14 SMALL ; [[lock]] ; name = "x" ; permits = 2 ; priority = "static" => manager | no priority
1 priority = "static" ; SMALL => priority
15 SMALL ; [[lock]] ; name = "x" ; permits = 2 ; [[lock]] ; name = "x" ; permits = 2 => x | twice
13 SMALL ; [[lock]] ; name = "x" ; algorithm = "voting" => voting | quorum
1 voters = [] ; SMALL => voters | 1 to 7
2 voters = [1, ; 3] ; SMALL => 3 | no member
3 voters = [1, ; 2, ; 1] ; SMALL => 1 | twice
1 lease = 5s ; SMALL => `5s` | quotes
1 algorithm = bakery ; SMALL => `bakery` | quotes
1 insecure = True ; SMALL => `True` | `true`
1 lease = 1979-05-27 ; SMALL => `1979-05-27` | quotes
1 lease = 07:32:00 ; SMALL => `07:32:00` | quotes
5 GROUP ; id = 1 ; address = udp:127.0.0.1:7401 => `udp:127.0.0.1:7401` | quotes
4 GROUP ; id = 9223372036854775808 ; address = "unix:/x" => `9223372036854775808` | 64 bits
1 voters = 1 ; SMALL => an array | an integer `1`
1 voters = ["1"] ; SMALL => an integer | a string `1`
1 group = 1 => a table | an integer `1`
1 [lock] ; SMALL => an array | a table
2 lease = "5s" ; lease = "6s" ; SMALL => `lease` | twice
2 lease = "5s" ; "lease" = "6s" ; SMALL => `lease` | twice
2 lease = "5s" ; lease.x = 1 ; SMALL => dot | once
3 group.name = "a" ; # ; [group] ; SMALL => `group` | twice
9 GROUP ; id = 1 ; address = "unix:/x" ; [group.x] ; [[member]] ; id = 2 ; [group] => `group` | twice
2 group.cluster = "x" ; group.x.y = 1 ; [group.z] ; [group] ; name = "g" => unknown key
4 [member] ; id = 1 ; [group] ; [[member]] => [member] | [[member]]
3 [group] ; [member.x] ; [[member]] => before
2 [group] ; name = "open => quotation mark
2 [group] ; name = """open => does not end
2 [group] ; name = "a\q" => \q
2 [group] ; name = "a\xg0" => 'g'
2 [group] ; name = "a\ud800" => D800
1 lease "5s" => `=` | a string
1 lease = => ends | value
1 lease = ; SMALL => a value | end of the line
1 lease = "5s" 6s => end of the line | `6s`
1 [group ; name = "g" => `]` | end of the line
1 voters = [1, => ends
1 """a""" = 1 => several lines
1 "a\nb" = 1 ; SMALL => unknown key `a\nb`
2 [group] ; names = "g" ; [[member]] ; id = 1 => names | name
1 [group] ; [[member]] ; id = 1 ; adress = "unix:/x" => missing | name
6 GROUP ; id = 1 ; address = "unix:/x" ; x = 1 ; voters = ["1"] => unknown key `x`
1 NESTED => nested
1 DOTS = 1 => dots | quotes
1 [DOTS] => dots | quotes
6 UNQUOTED => dots | quotes
3 leas = "5s" ; # ; address = udp ; DOTS = 1 => `udp` | quotes
"#;

#[test]
fn refusals_name_line_and_reason() {
    let rows = REFUSALS.trim().lines();
    let failures: Vec<_> = rows.filter_map(|row| is_refused(row).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn is_refused(row: &str) -> Result<(), String> {
    let (line, rest) = row.split_once(' ').unwrap();
    let (text, words) = rest.split_once(" =>").unwrap();
    let text = text
        .replace(" ; ", "\n")
        .replace("EMPTY", "")
        .replace("SMALL", SMALL.trim())
        .replace("GROUP", "[group]\nname = \"g\"\n[[member]]")
        .replace("LONG", &"x".repeat(256))
        .replace("NESTED", &format!("voters = {}", "[".repeat(100_000)))
        .replace("DOTS", &"a.".repeat(100_000))
        .replace("UNQUOTED", &"a.b.c.d = 1\n".repeat(100_000));
    let error = match Config::parse(&text) {
        Err(error) => error.to_string(),
        Ok(_) => return Err(format!("accepted:\n{text}")),
    };
    let is_right = error.starts_with(&format!("configuration:{line}: "))
        && words.trim().split(" | ").all(|word| error.contains(word))
        && !error.contains('\n');
    is_right
        .then_some(())
        .ok_or_else(|| format!("{error}\n\tshould be {row}"))
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
