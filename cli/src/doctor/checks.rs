//! The checks, each a function from what was gathered to what it finds.

mod file;
mod group;
mod host;
mod network;
mod service;

use std::time::Duration;

use distlock::NodeId;
use distlock_agent::protocol::membership::quorum::members;

use super::facts::Facts;
use super::finding::Finding;

/// In the order in which they are told: the file and the agent, on which the others rest, then the
/// network, the group, and the host.
pub(super) const CHECKS: [fn(&Facts) -> Finding; 22] = [
    file::configuration,
    service::agent,
    network::address,
    network::mtu,
    file::keys,
    file::sealing,
    file::files,
    group::members,
    group::quorum,
    group::voters,
    file::failure_rule,
    file::lease,
    group::state,
    host::state_directory,
    host::disk,
    host::clock_source,
    group::clock_rates,
    host::open_files,
    host::receive_buffer,
    network::filter,
    service::clients,
    network::floods,
];

/// A write that takes longer than this may have members taken for silent that only wait for their disks:
/// a twentieth of the lease.
pub(super) fn slow_write(lease: Duration) -> Duration {
    lease / 20
}

/// `ids` as the beginning of a sentence's part: `member 2`, `members 2, 3`.
fn named(ids: impl IntoIterator<Item = u16>) -> String {
    let ids: Vec<_> = ids.into_iter().filter_map(NodeId::new).collect();
    members(&ids)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn each_check_has_a_name_of_its_own_which_the_manual_has() {
        let facts = Facts::default();
        let findings: Vec<_> = CHECKS.iter().map(|check| check(&facts)).collect();
        let ids: BTreeSet<_> = findings.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        let manual = include_str!("../../../man/distlock.1");
        for id in ids {
            let item = format!(".It Cm {id}\n");
            assert!(manual.contains(&item), "{id} is not in distlock(1)");
        }
    }

    /// Where nothing is known, nothing fails, and nothing is passed over in silence.
    #[test]
    fn what_cannot_be_looked_at_is_told() {
        let facts = Facts::default();
        for finding in CHECKS.iter().map(|check| check(&facts)) {
            let expected = match finding.id {
                // That neither is there is the finding.
                "configuration" | "agent" => Outcome::Warn,
                _ => Outcome::Skipped,
            };
            assert_eq!(finding.result, expected, "{finding}");
            assert!(!finding.advice.is_empty(), "{finding}");
        }
    }
}
