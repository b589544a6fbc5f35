//! Watches.

use distlock_protocol::ledger::{Op, Reply};

use crate::driver::Driver;
use crate::etcd::{Server, directory, open, options};
use crate::{changed, entry, key, missed, read, version, write};

#[test]
fn who_is_interested_is_told_of_changes() {
    let directory = directory();
    let Some(mut server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    let mut other = Driver::new(open(options(&[server.address])));
    driver.up();
    other.up();
    let first = version(&other.run(write("lock/a", b"1", None)));
    driver.interest(&[key("lock/a")]);
    driver.until("the watch", missed);
    let second = version(&other.run(write("lock/a", b"2", Some(first))));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/a"), Some(entry(b"2", second))));
    // Of all the group's, for who waits for one may hold another.
    let other_first = version(&other.run(write("lock/b", b"1", None)));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/b"), Some(entry(b"1", other_first))));
    let expect = other_first;
    let remove = Op::Remove {
        key: key("lock/b"),
        expect,
    };
    assert_eq!(other.run(remove), Reply::Removed);
    assert_eq!(driver.until("a hint", changed), (key("lock/b"), None));
    version(&other.run(write("lock/b", b"1", None)));
    // The server's restart ends the watch, and it begins anew.
    driver.interest(&[key("lock/b")]);
    server.kill();
    driver.down();
    driver.events();
    server.begin();
    driver.up();
    driver.until("the watch", missed);
    driver.events();
    other.up();
    let Reply::Value(Some(now)) = other.run(read("lock/b")) else {
        panic!("a restart forgets nothing");
    };
    let next = version(&other.run(write("lock/b", b"4", Some(now.version))));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/b"), Some(entry(b"4", next))));
}
