//! TLS, and certificates of clients.

use distlock_protocol::ledger::{Host, Reply};
use distlock_stores::Tls;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::certificates::{Authority, Identity};
use crate::driver::Driver;
use crate::etcd::{self, Server, directory, open, options};
use crate::{changed, entry, key, missed, read, version, write};

/// What is under a path as a file of that name.
fn file(directory: &TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tls_and_certificates() {
    let directory = directory();
    let (authority, other) = (Authority::new("authority"), Authority::new("another"));
    let own = authority.certify(Some("etcd"), &["127.0.0.1"]);
    let ca = file(&directory, "ca.pem", &authority.certificate);
    let certificate = file(&directory, "server.pem", &own.certificate);
    let key_file = file(&directory, "server.key", &own.key);
    let sealed = ["--cert-file", &certificate, "--key-file", &key_file];
    let Some(server) = Server::start(&directory, &sealed) else {
        return;
    };
    let with = |server: &Server, ca: Option<&Authority>, identity: Option<&Identity>| {
        let mut options = options(&[server.address]);
        options.tls = ca.map(|ca| {
            let identity = identity.map(|one| (one.certificate.as_bytes(), one.key.as_bytes()));
            Tls::new(Some(ca.certificate.as_bytes()), identity).unwrap()
        });
        options
    };
    let mut driver = Driver::new(open(with(&server, Some(&authority), None)));
    driver.up();
    driver.interest(&[key("a")]);
    driver.until("the watch", missed);
    // Longer than a record of TLS, and what rustls keeps.
    let value = vec![b'x'; 200_000];
    let first = version(&driver.run(write("a", &value, None)));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("a"), Some(entry(&value, first))));
    let there = Reply::Value(Some(entry(&value, first)));
    let ids: Vec<_> = (0..8).map(|_| driver.submit(read("a"))).collect();
    for id in ids {
        assert!(
            driver.reply(id) == there,
            "the same value on each connection"
        );
    }
    for (options, words) in [
        (
            with(&server, Some(&other), None),
            "no authority that is trusted",
        ),
        (with(&server, None, None), "write etcds://"),
    ] {
        let why = Driver::new(open(options)).down();
        assert!(why.contains(words), "{why}");
    }
    let mut by_name = with(&server, Some(&authority), None);
    let port = server.address.port();
    by_name.hosts = vec![Host::Tcp {
        name: "localhost".to_owned(),
        port,
    }];
    let why = Driver::new(open(by_name)).down();
    assert!(why.contains("another host than localhost"), "{why}");

    // A server that speaks no TLS.
    let plain = etcd::directory();
    let Some(plain_server) = Server::start(&plain, &[]) else {
        return;
    };
    let why = Driver::new(open(with(&plain_server, Some(&authority), None))).down();
    assert!(why.contains("etcd://"), "{why}");

    // One that wants certificates of clients.
    let mut strict = sealed.to_vec();
    strict.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
    let strict_directory = etcd::directory();
    let Some(strict) = Server::start(&strict_directory, &strict) else {
        return;
    };
    let why = Driver::new(open(with(&strict, Some(&authority), None))).down();
    assert!(
        why.contains("wants one") || why.contains("wants a"),
        "{why}"
    );
    let nameless = authority.certify(None, &[]);
    let named = authority.certify(Some("app"), &[]);
    for identity in [&nameless, &named] {
        let mut driver = Driver::new(open(with(&strict, Some(&authority), Some(identity))));
        driver.up();
        assert!(matches!(driver.run(read("none")), Reply::Value(None)));
    }

    // With users, etcd's gateway takes no certificate with a name.
    let users_directory = etcd::directory();
    let Some(mut users) = Server::start(&users_directory, &[]) else {
        return;
    };
    users.have_users();
    users.kill();
    let mut options = sealed.to_vec();
    options.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
    let Some(users) = Server::start(&users_directory, &options) else {
        return;
    };
    let as_user = |identity| {
        let mut options = with(&users, Some(&authority), Some(identity));
        options.user = Some("app".to_owned());
        options.password = Some(Zeroizing::new("se\"cret".to_owned()));
        options
    };
    let mut driver = Driver::new(open(as_user(&nameless)));
    driver.up();
    assert!(matches!(driver.run(read("none")), Reply::Value(None)));
    let why = Driver::new(open(as_user(&named))).down();
    assert!(why.contains("common name"), "{why}");
}
