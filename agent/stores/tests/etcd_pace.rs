//! How long operations of etcd's client take, beside the barest request that does the same.
//!
//! `cargo test -p distlock-stores --features etcd --test etcd_pace -- --ignored --nocapture`

#![cfg(feature = "etcd")]

#[path = "common/driver.rs"]
#[expect(dead_code, reason = "there is nothing to wait for here")]
mod driver;
#[path = "common/etcd.rs"]
#[expect(dead_code, reason = "there are no users and no restarts here")]
mod etcd;
#[path = "common/servers.rs"]
mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use distlock_protocol::ledger::{Key, Op, Reply, StoreEvent};

use self::driver::Driver;
use self::etcd::{Server, directory, open, options};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = SystemTime::now();
    let result = work();
    (begun.elapsed().unwrap_or_default(), result)
}

fn write(name: &str, value: &[u8]) -> Op {
    let key = Key::new(format!("distlock/shop/{name}"));
    let (value, expect) = (value.to_vec(), None);
    Op::Write { key, value, expect }
}

#[test]
#[ignore = "it measures, and what it measures depends on the host"]
fn operations_take_little_longer_than_bare_requests() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    driver.up();
    let value = [b'x'; 300];
    let mut own = vec![];
    for number in 0..500 {
        let op = write(&format!("a{number}"), &value);
        let (time, reply) = timed(|| driver.run(op));
        assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
        own.push(time);
    }

    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut bare = vec![];
    for number in 0..500 {
        let key = format!("a{number:07}");
        let body = format!(r#"{{"key":"{key}","value":"{}"}}"#, "AAAA".repeat(100));
        let length = body.len();
        let request = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut reply = [0; 4096];
        let (time, count) = timed(|| {
            socket.write_all(request.as_bytes()).unwrap();
            socket.read(&mut reply).unwrap()
        });
        assert!(reply[..count].starts_with(b"HTTP/1.1 200"), "a put is done");
        bare.push(time);
    }
    println!(
        "one write: {:?}; a bare put: {:?}",
        median(own),
        median(bare)
    );

    for count in [10, 100, 1000] {
        let (time, done) = timed(|| {
            for number in 0..count {
                driver.submit(write(&format!("b{count}-{number}"), &value));
            }
            let replies = (0..count).map(|_| {
                driver.until("a reply", |event| match event {
                    StoreEvent::Reply(_, reply) => Some(matches!(reply, Reply::Done(_))),
                    _ => None,
                })
            });
            replies.filter(|is_done| *is_done).count()
        });
        println!("{count} writes at once: {done} done in {time:?}");
    }
    println!("{:?}", driver.events());
}
