//! What a server promises, standbys, and a pooler between.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use distlock_protocol::ledger::{Host, Reply, StoreEvent, StoreFacts};
use distlock_stores::postgresql::Postgresql;

use crate::driver::Driver;
use crate::server::{Server, directory, options, unprivileged};
use crate::servers::{Process, free_ports, program};
use crate::{done, entry, key, read, write};

fn facts(server: &Server) -> StoreFacts {
    Driver::new(Box::new(Postgresql::new(options(server.tcp())))).up()
}

#[test]
fn a_server_keeps_what_it_acknowledged_unless_it_is_set_to_forget() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let sound = facts(&server);
    assert!(!sound.may_forget);
    let system = server.sql("SELECT system_identifier FROM pg_control_system()");
    assert_eq!(sound.identity, format!("{system}/00000001"));
    server.sql("ALTER TABLE distlock SET UNLOGGED");
    assert!(facts(&server).may_forget);
    server.sql("ALTER TABLE distlock SET LOGGED");
    // A standby that is away.
    server.sql("SELECT pg_create_physical_replication_slot('standby')");
    assert!(facts(&server).may_forget);
    server.sql("SELECT pg_drop_replication_slot('standby')");
    // For the user, whatever the default is.
    server.sql("ALTER ROLE postgres SET synchronous_commit = off");
    assert_eq!(facts(&server), sound);
    server.sql("ALTER SYSTEM SET full_page_writes = off");
    server.sql("SELECT pg_reload_conf()");
    thread::sleep(Duration::from_millis(200));
    assert!(facts(&server).may_forget);
    // Whoever may not ask knows less.
    server.sql("ALTER SYSTEM RESET full_page_writes");
    server.sql("SELECT pg_reload_conf()");
    server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public; CREATE ROLE app LOGIN");
    let mut options = options(server.tcp());
    (options.user, options.database) = (Some("app".to_owned()), Some("postgres".to_owned()));
    let unknown = Driver::new(Box::new(Postgresql::new(options))).up();
    assert!(unknown.may_forget);
    assert!(unknown.identity.starts_with("database "), "{unknown:?}");
}

#[test]
fn without_fsync_it_may_forget() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    assert!(facts(&server).may_forget);
}

/// The host of a server.
fn hosts(servers: &[&Server]) -> Vec<Host> {
    servers.iter().map(|server| server.tcp()).collect()
}

#[test]
fn a_standby_is_not_written_to_until_it_is_promoted_and_is_another_store_then() {
    let Some(mut primary) = Server::start(&["fsync=off", "full_page_writes=on"]) else {
        return;
    };
    let standby = primary.standby(&["fsync=off"]);
    let why = Driver::new(Box::new(Postgresql::new(options(standby.tcp())))).down();
    assert!(why.contains("standby"), "{why}");
    let mut options = options(primary.tcp());
    options.hosts = hosts(&[&standby, &primary]);
    let mut a = Driver::new(Box::new(Postgresql::new(options)));
    let before = a.up();
    a.events();
    let k = key("k");
    let version = done(a.run(write(&k, "{}", None)));
    let caught_up = "SELECT count(*) FROM distlock";
    while standby.sql(caught_up) != "1" {
        thread::sleep(Duration::from_millis(20));
    }
    primary.stop_immediately();
    a.down();
    standby.sql("SELECT pg_promote()");
    let after = a.up();
    let system = before.identity.split_once('/').unwrap().0;
    assert_eq!(before.identity, format!("{system}/00000001"));
    // Though the last checkpoint may have the old timeline.
    assert_eq!(after.identity, format!("{system}/00000002"));
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry("{}", version))));
}

#[test]
fn a_standby_that_is_not_waited_for_makes_a_store_that_may_forget() {
    let Some(primary) = Server::start(&[]) else {
        return;
    };
    let _standby = primary.standby(&["cluster_name=one"]);
    let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    while primary.sql(streaming) != "1" {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(facts(&primary).may_forget);
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'one'");
    primary.sql("SELECT pg_reload_conf()");
    thread::sleep(Duration::from_millis(200));
    assert!(!facts(&primary).may_forget);
    // A write waits for the standby, though the default does not.
    primary.sql("ALTER ROLE postgres SET synchronous_commit = local");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'another'");
    primary.sql("SELECT pg_reload_conf()");
    thread::sleep(Duration::from_millis(200));
    let mut a = primary.client();
    let k = key("k");
    a.submit(write(&k, "{}", None));
    let why = a.down();
    assert!(why.contains("no reply"), "{why}");
}

/// PgBouncer before a server, if it is installed.
fn pooled(server: &Server) -> Option<(Process, tempfile::TempDir, u16)> {
    let pgbouncer = program("pgbouncer", "PgBouncer", &["/usr/sbin"])?;
    let directory = directory();
    let port = free_ports(1)[0];
    let path = directory.path().display();
    let database = server.port;
    let config = format!(
        "[databases]\npostgres = host=127.0.0.1 port={database} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n\
         logfile = {path}/log\npidfile = {path}/pid\n"
    );
    let file = directory.path().join("pgbouncer.ini");
    fs::write(&file, config).unwrap();
    let child = unprivileged(pgbouncer).arg("-q").arg(&file).spawn();
    let process = Process(child.unwrap());
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    Some((process, directory, port))
}

#[test]
fn behind_a_pooler_that_pools_transactions_all_is_as_ever_but_hints() {
    let Some(server) = Server::start(&["fsync=off", "log_statement=all"]) else {
        return;
    };
    let Some((_pooler, _directory, port)) = pooled(&server) else {
        return;
    };
    let name = "127.0.0.1".to_owned();
    let options = || {
        options(Host::Tcp {
            name: name.clone(),
            port,
        })
    };
    let k = key("k");
    let clients: Vec<Driver> = (0..8)
        .map(|_| {
            let mut driver = Driver::new(Box::new(Postgresql::new(options())));
            let facts = driver.up();
            assert!(facts.identity.ends_with("/00000001"), "{facts:?}");
            driver.interest(std::slice::from_ref(&k));
            driver
        })
        .collect();
    thread::scope(|scope| {
        for mut client in clients {
            let k = &k;
            scope.spawn(move || {
                crate::count(&mut client, k, 50);
                // Several at once.
                let ids: Vec<_> = (0..20).map(|_| client.submit(read(k))).collect();
                let ids: Vec<_> = ids
                    .into_iter()
                    .chain([client.submit(write(k, "no", None))])
                    .collect();
                let last = ids.len() - 1;
                for (at, id) in ids.into_iter().enumerate() {
                    let reply = client.reply(id);
                    let is_right = match reply {
                        Reply::Value(Some(_)) => at < last,
                        Reply::Conflict(Some(_)) => at == last,
                        _ => false,
                    };
                    assert!(is_right, "{at}: {reply:?}");
                }
                let events = client.events();
                let is_hint = |event: &StoreEvent| matches!(event, StoreEvent::Changed(..));
                assert!(!events.iter().any(is_hint), "{events:?}");
            });
        }
    });
    assert_eq!(server.sql("SELECT value FROM distlock"), "400");
    // Nothing is left in the sessions that others get.
    let log = fs::read_to_string(server.directory.path().join("log")).unwrap();
    assert!(!log.contains("LISTEN") && log.contains("execute <unnamed>"));
}

#[test]
fn a_pooler_that_leads_to_another_store_is_noticed() {
    let settings = ["fsync=off"];
    let (Some(server), Some(other)) = (Server::start(&settings), Server::start(&settings)) else {
        return;
    };
    let Some((pooler, directory, port)) = pooled(&server) else {
        return;
    };
    let name = "127.0.0.1".to_owned();
    let mut a = Driver::new(Box::new(Postgresql::new(options(Host::Tcp { name, port }))));
    let before = a.up();
    let k = key("k");
    let version = done(a.run(write(&k, "{}", None)));
    let file = directory.path().join("pgbouncer.ini");
    let config = fs::read_to_string(&file).unwrap();
    let (old, new) = (server.port.to_string(), other.port.to_string());
    fs::write(
        &file,
        config.replace(&format!("port={old} "), &format!("port={new} ")),
    )
    .unwrap();
    let pid = pooler.0.id().to_string();
    assert!(
        Command::new("sh")
            .args(["-c", &format!("kill -HUP {pid}")])
            .status()
            .unwrap()
            .success()
    );
    thread::sleep(Duration::from_secs(1));
    a.submit(write(&k, "1", Some(version)));
    let why = a.down();
    assert!(why.contains("another store"), "{why}");
    assert_ne!(a.up().identity, before.identity);
    assert_eq!(a.run(read(&k)), Reply::Value(None));
}
