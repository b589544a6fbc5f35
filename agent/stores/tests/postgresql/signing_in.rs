//! Passwords, certificates, TLS, sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use distlock_protocol::ledger::Host;
use distlock_stores::postgresql::Postgresql;
use distlock_stores::{StoreOptions, Tls};

use crate::driver::Driver;
use crate::server::{Server, options, unprivileged};
use crate::servers::program;
use crate::{done, key, write};

/// Has the server let in by these lines alone, and local ones for psql.
fn let_in(server: &Server, lines: &str) {
    let hba = server.directory.path().join("data/pg_hba.conf");
    fs::write(hba, format!("local all all trust\n{lines}\n")).unwrap();
    server.sql("SELECT pg_reload_conf()");
    std::thread::sleep(std::time::Duration::from_millis(200));
}

fn with_password(server: &Server, password: &str) -> StoreOptions {
    let mut options = options(server.tcp());
    (options.user, options.database) = (Some("app".to_owned()), Some("postgres".to_owned()));
    options.password = Some(password.to_owned().into());
    options
}

fn driver(options: StoreOptions) -> Driver {
    Driver::new(Box::new(Postgresql::new(options)))
}

#[track_caller]
fn refused(options: StoreOptions, why: &str) {
    let said = driver(options).down();
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_password_is_proved_and_never_sent() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    server.sql("CREATE ROLE app LOGIN PASSWORD 'sésame'; GRANT ALL ON distlock TO app");
    let_in(&server, "host all all 127.0.0.1/32 scram-sha-256");
    let mut a = driver(with_password(&server, "sésame"));
    a.up();
    done(a.run(write(&key("k"), "{}", None)));
    refused(
        with_password(&server, "sesame"),
        "the password of app is wrong",
    );
    let mut options = with_password(&server, "");
    options.password = None;
    refused(options, "password_file");
    let mut options = with_password(&server, "sésame");
    options.database = Some("none".to_owned());
    refused(options, "3D000");
    let mut options = with_password(&server, "sésame");
    options.user = None;
    refused(options, "no user is named");
    // What would show it is refused.
    let_in(&server, "host all all 127.0.0.1/32 password");
    refused(with_password(&server, "sésame"), "in clear");
    server.sql("SET password_encryption = md5; CREATE ROLE old LOGIN PASSWORD 'x'");
    let_in(&server, "host all all 127.0.0.1/32 md5");
    let mut options = with_password(&server, "x");
    options.user = Some("old".to_owned());
    refused(options, "MD5");
    let_in(&server, "host all all 127.0.0.1/32 reject");
    refused(
        with_password(&server, "sésame"),
        "does not let the client in",
    );
}

#[test]
fn a_unix_socket_will_do() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = driver(options(server.unix()));
    a.up();
    done(a.run(write(&key("k"), "{}", None)));
}

/// Has openssl do that in a directory.
fn run(openssl: &Path, directory: &Path, arguments: &str) {
    let output = Command::new(openssl)
        .current_dir(directory)
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// An authority, a certificate of it for 127.0.0.1, and one for the user `app`.
fn certificates(openssl: &Path, directory: &Path) {
    for name in ["ca", "other"] {
        run(
            openssl,
            directory,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN={name} -keyout {name}.key -out {name}.crt"
            ),
        );
    }
    fs::write(directory.join("san"), "subjectAltName=IP:127.0.0.1").unwrap();
    for (name, extra) in [("server", "-extfile san"), ("app", "")] {
        run(
            openssl,
            directory,
            &format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} \
                 -keyout {name}.key -out {name}.csr"
            ),
        );
        // A client's certificate is one of version 3, too.
        let extra = if extra.is_empty() {
            "-extfile client"
        } else {
            extra
        };
        fs::write(directory.join("client"), "extendedKeyUsage=clientAuth").unwrap();
        run(
            openssl,
            directory,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                 -out {name}.crt {extra}"
            ),
        );
    }
}

#[test]
fn tls_shows_each_who_the_other_is() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let directory = server.directory.path().to_owned();
    let Some(openssl) = program("openssl", "openssl", &[]) else {
        return;
    };
    certificates(&openssl, &directory);
    let pem = |name: &str| fs::read(directory.join(name)).unwrap();
    let tls = |ca: &str| Some(Tls::new(Some(&pem(ca)), None).unwrap());
    server.sql("CREATE ROLE app LOGIN PASSWORD 'x'; GRANT ALL ON distlock TO app");
    // There is none at first.
    let mut options = with_password(&server, "x");
    options.tls = tls("ca.crt");
    refused(options, "the server has no TLS");
    let readable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(directory.join("server.key"), readable).unwrap();
    // Which must be the server's own, and nobody else's to read.
    let copied = unprivileged("install")
        .args(["-m", "600"])
        .arg(directory.join("server.key"))
        .arg(directory.join("data/server.key"))
        .status();
    assert!(copied.unwrap().success());
    for (setting, file) in [("ssl_cert_file", "server.crt"), ("ssl_ca_file", "ca.crt")] {
        let path = directory.join(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let path = path.display();
        server.sql(&format!("ALTER SYSTEM SET {setting} = '{path}'"));
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    let_in(&server, "hostssl all all 127.0.0.1/32 scram-sha-256");
    let sealed = |ca: &str| {
        let mut options = with_password(&server, "x");
        options.tls = tls(ca);
        options
    };
    let mut a = driver(sealed("ca.crt"));
    a.up();
    done(a.run(write(&key("k"), &"long".repeat(100_000), None)));
    let ssl = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE ssl AND application_name = 'distlock'";
    assert_eq!(server.sql(ssl), "1");
    refused(sealed("other.crt"), "authority");
    refused(with_password(&server, "x"), "does not let the client in");
    let mut options = sealed("ca.crt");
    let (name, port) = ("localhost".to_owned(), server.port);
    options.hosts = vec![Host::Tcp { name, port }];
    refused(options, "another host");
    // Who gets the password in clear is known.
    let_in(&server, "hostssl all all 127.0.0.1/32 password");
    driver(sealed("ca.crt")).up();
    // A certificate in place of a password.
    let_in(&server, "hostssl all all 127.0.0.1/32 cert");
    let identity = (&pem("app.crt")[..], &pem("app.key")[..]);
    let mut options = sealed("ca.crt");
    options.password = None;
    options.tls = Some(Tls::new(Some(&pem("ca.crt")), Some(identity)).unwrap());
    driver(options).up();
    refused(sealed("ca.crt"), "does not let the client in");
}
