//! Users, passwords and tokens.

use std::time::Duration;

use distlock_protocol::ledger::{Key, Op, Reply, StoreEvent};
use zeroize::Zeroizing;

use crate::driver::Driver;
use crate::etcd::{Server, directory, open, options};
use crate::{changed, entry, key, missed, read, version, write};

#[test]
fn users_sign_in_and_tokens_that_expire_are_replaced() {
    let directory = directory();
    // Seconds; the least.
    let Some(server) = Server::start(&directory, &["--auth-token-ttl", "1"]) else {
        return;
    };
    server.have_users();
    let as_user = |user: &str, password: &str| {
        let mut options = options(&[server.address]);
        options.user = Some(user.to_owned());
        options.password = Some(Zeroizing::new(password.to_owned()));
        options
    };
    let mut driver = Driver::new(open(as_user("app", "se\"cret")));
    driver.up();
    let mut other = Driver::new(open(as_user("root", "root")));
    other.up();
    driver.interest(&[key("a")]);
    driver.until("the watch", missed);
    let first = version(&driver.run(write("a", b"1", None)));
    // The hint may come before the reply.
    assert_eq!(
        driver.until("a hint", changed),
        (key("a"), Some(entry(b"1", first)))
    );
    driver.pass(Duration::from_secs(4));
    driver.events();
    let ids: Vec<_> = (0..20).map(|_| driver.submit(read("a"))).collect();
    for id in ids {
        assert_eq!(driver.reply(id), Reply::Value(Some(entry(b"1", first))));
    }
    let second = version(&driver.run(write("a", b"2", Some(first))));
    let events = driver.events();
    let is_down = |event: &StoreEvent| matches!(event, StoreEvent::Down(_));
    assert!(!events.iter().any(is_down), "{events:?}");
    // A watch outlives its token, or is opened anew with another.
    driver.pass(Duration::from_secs(1));
    version(&other.run(write("a", b"3", Some(second))));
    driver.until("a hint", |event| match event {
        StoreEvent::Changed(_, Some(entry)) if entry.value == b"3" => Some(()),
        _ => None,
    });

    // Elsewhere it may do nothing.
    let (prefix, after) = (Key::new("other/"), None);
    let reply = driver.run(Op::List { prefix, after });
    assert!(
        matches!(&reply, Reply::Refused(why) if why.contains("permission")),
        "{reply:?}"
    );
    let (key, value, expect) = (Key::new("other/a"), b"x".to_vec(), None);
    let reply = driver.run(Op::Write { key, value, expect });
    assert!(
        matches!(&reply, Reply::Refused(why) if why.contains("permission")),
        "{reply:?}"
    );

    for (options, words) in [
        (as_user("app", "wrong"), "password is another one"),
        (as_user("nobody", "x"), "password is another one"),
        (options(&[server.address]), "none is named here"),
    ] {
        let mut driver = Driver::new(open(options));
        let why = driver.down();
        assert!(why.contains(words), "{why}");
    }
    let mut options = as_user("app", "se\"cret");
    options.group = "other".to_owned();
    let mut driver = Driver::new(open(options));
    let why = driver.down();
    assert!(why.contains("permission readwrite"), "{why}");
}

#[test]
fn a_user_is_no_hindrance_where_there_are_none() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut options = options(&[server.address]);
    options.user = Some("app".to_owned());
    options.password = Some(Zeroizing::new("se\"cret".to_owned()));
    let mut driver = Driver::new(open(options));
    driver.up();
    let first = version(&driver.run(write("a", b"1", None)));
    // They are switched on while the agent works.
    server.have_users();
    let there = Reply::Value(Some(entry(b"1", first)));
    assert_eq!(driver.run(read("a")), there);
    version(&driver.run(write("a", b"2", Some(first))));
    assert_eq!(driver.events(), []);
}
