//! Hosts in network namespaces of their own, joined by a bridge in one more; all of it is removed
//! when the test ends, however it ends.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts `1..=hosts` at 10.77.0.N, and the printer at [`PRINTER`].
pub(crate) struct Network {
    prefix: String,
    namespaces: Vec<String>,
}

/// The printer's host number.
pub(crate) const PRINTER: u16 = 100;

impl Network {
    /// Builds it. `None`, said aloud, where this process may not.
    pub(crate) fn new(hosts: u16) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("distlock-{}-{number}", std::process::id());
        let mut network = Self {
            prefix,
            namespaces: Vec::new(),
        };

        if !network.add_namespace("switch") {
            skipped("network namespaces cannot be made; it takes root");
            return None;
        }
        let switch = network.name("switch");
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", "bridge", "up"]);
        for host in (1..=hosts).chain([PRINTER]) {
            let (label, port) = (host.to_string(), format!("port{host}"));
            assert!(network.add_namespace(&label));
            let name = network.name(&label);
            let pair = ["type", "veth", "peer", "name", "eth0", "netns", &name];
            ip(&[&["-n", &switch, "link", "add", &port], &pair[..]].concat());
            ip(&[
                "-n", &switch, "link", "set", &port, "master", "bridge", "up",
            ]);
            let address = format!("{}/24", address(host));
            ip(&["-n", &name, "address", "add", &address, "dev", "eth0"]);
            ip(&["-n", &name, "link", "set", "eth0", "up"]);
            ip(&["-n", &name, "link", "set", "lo", "up"]);
        }
        Some(network)
    }

    /// `command`, to be run on `host`. It becomes the process itself, so that ending that ends it.
    pub(crate) fn on(&self, host: u16, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name(&host.to_string())]);
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        inside
    }

    fn name(&self, label: &str) -> String {
        format!("{}-{label}", self.prefix)
    }

    fn add_namespace(&mut self, label: &str) -> bool {
        let name = self.name(label);
        let added = Command::new("ip").args(["netns", "add", &name]).output();
        let added = added.is_ok_and(|output| output.status.success());
        if added {
            self.namespaces.push(name);
        }
        added
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.namespaces {
            // A test that has failed already shall say why, not that this failed too.
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

/// Says aloud that a test does not run; unless `DISTLOCK_TESTS=all` says that it can.
pub(crate) fn skipped(why: &str) {
    let required = std::env::var("DISTLOCK_TESTS").is_ok_and(|tests| tests == "all");
    assert!(!required, "DISTLOCK_TESTS=all, and {why}");
    eprintln!("SKIPPED: {why}");
}

/// A host's address.
pub(crate) fn address(host: u16) -> String {
    format!("10.77.0.{host}")
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "ip {}: {error}",
        arguments.join(" ")
    );
}
