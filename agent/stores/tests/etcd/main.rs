//! The client of etcd, with a real one.

#![cfg(feature = "etcd")]

#[path = "../common/agents.rs"]
mod agents;
#[path = "../common/certificates.rs"]
mod certificates;
#[path = "../common/driver.rs"]
mod driver;
#[path = "../common/etcd.rs"]
mod etcd;
#[path = "../common/proxy.rs"]
mod proxy;
#[path = "../common/servers.rs"]
mod servers;

mod hints;
mod ledgers;
mod mishaps;
mod registers;
mod tls;
mod users;

use distlock_protocol::ledger::{Entry, Key, Op, Reply, StoreEvent, Version};

fn key(name: &str) -> Key {
    Key::new(format!("distlock/shop/{name}"))
}

fn write(name: &str, value: &[u8], expect: Option<Version>) -> Op {
    let (key, value) = (key(name), value.to_vec());
    Op::Write { key, value, expect }
}

fn read(name: &str) -> Op {
    Op::Read { key: key(name) }
}

fn version(reply: &Reply) -> Version {
    let Reply::Done(version) = reply else {
        panic!("{reply:?}");
    };
    *version
}

fn entry(value: &[u8], version: Version) -> Entry {
    let value = value.to_vec();
    Entry { value, version }
}

fn changed(event: &StoreEvent) -> Option<(Key, Option<Entry>)> {
    match event {
        StoreEvent::Changed(key, entry) => Some((key.clone(), entry.clone())),
        _ => None,
    }
}

fn missed(event: &StoreEvent) -> Option<()> {
    matches!(event, StoreEvent::Missed).then_some(())
}
