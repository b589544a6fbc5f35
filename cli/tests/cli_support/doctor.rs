//! What `distlock doctor` finds, for the tests that plant faults.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::group::Group;
use super::{distlock, eventually, exits, output};

/// All checks, in their order.
pub(crate) const CHECKS: [&str; 22] = [
    "configuration",
    "agent",
    "address",
    "mtu",
    "keys",
    "sealing",
    "files",
    "members",
    "quorum",
    "voters",
    "failure-rule",
    "lease",
    "state",
    "state-directory",
    "disk",
    "clock-source",
    "clock-rates",
    "open-files",
    "receive-buffer",
    "filter",
    "clients",
    "floods",
];

/// What a doctor found.
pub(crate) struct Findings {
    /// By check: how it went, what was found, what to do.
    checks: BTreeMap<String, [String; 3]>,
}

impl Findings {
    /// What `doctor`, which prints JSON, finds. Its exit code is that of the worst finding.
    #[track_caller]
    pub(crate) fn of(mut doctor: Command) -> Self {
        let said = output(&mut doctor);
        let told: serde_json::Value = serde_json::from_slice(&said.stdout)
            .unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(told["schema"], 1, "{said:?}");
        assert!(said.stderr.is_empty(), "{said:?}");
        let checks = told["checks"].as_array().expect("a list").iter();
        let text = |check: &serde_json::Value, key: &str| {
            let text = check[key].as_str();
            text.unwrap_or_else(|| panic!("{key} of {check}"))
                .to_owned()
        };
        let order: Vec<_> = checks.clone().map(|check| text(check, "id")).collect();
        assert_eq!(order, CHECKS);
        let checks: BTreeMap<_, _> = checks
            .map(|check| {
                let found = ["result", "what", "advice"].map(|key| text(check, key));
                (text(check, "id"), found)
            })
            .collect();
        let is_any = |result: &str| checks.values().any(|found| found[0] == result);
        let code = match (is_any("fail"), is_any("warn")) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        assert_eq!(said.status.code(), Some(code), "{said:?}");
        for (id, [result, what, advice]) in &checks {
            assert_eq!(result == "ok", advice.is_empty(), "{id}: {what}; {advice}");
        }
        Self { checks }
    }

    /// What the check `id` found, which must be `result` and have all of `words`.
    #[track_caller]
    pub(crate) fn is(&self, id: &str, result: &str, words: &[&str]) {
        let [found, what, advice] = &self.checks[id];
        assert_eq!(found, result, "{id}: {what}; {advice}");
        let text = format!("{what}; {advice}");
        for word in words {
            assert!(text.contains(word), "{id}: {word:?} in {text:?}");
        }
    }

    pub(crate) fn result(&self, id: &str) -> &str {
        &self.checks[id][0]
    }
}

/// `distlock doctor` for member `id`, by its configuration and at its socket.
pub(crate) fn doctor(group: &Group, id: usize) -> Command {
    let mut command = group.member(id, ["doctor", "--json", "--socket"]);
    command.arg(group.socket(id));
    command
}

#[track_caller]
pub(crate) fn find(group: &Group, id: usize) -> Findings {
    Findings::of(doctor(group, id))
}

/// Waits until the check `id` of `member`'s doctor finds `result`.
#[track_caller]
pub(crate) fn eventually_finds(group: &Group, member: usize, id: &str, result: &str) -> Findings {
    let mut last = None;
    eventually(&format!("{id} is {result}"), || {
        let found = find(group, member);
        let is_found = found.result(id) == result;
        last = Some(found);
        is_found
    });
    last.expect("it was looked at")
}

/// A configuration of two members at these addresses, with a key.
pub(crate) fn at(group: &Group, addresses: [&str; 2]) -> PathBuf {
    let key = group.file("group.key");
    exits(distlock().arg("keygen").arg(&key), 0);
    let mut text = format!(
        "key_file = \"{}\"\n[group]\nname = \"shop\"\n",
        key.display()
    );
    for (id, address) in (1..).zip(addresses) {
        text += &format!("[[member]]\nid = {id}\naddress = \"udp:{address}:7400\"\n");
    }
    let path = group.file("remote.toml");
    fs::write(&path, text).expect("a file");
    path
}
