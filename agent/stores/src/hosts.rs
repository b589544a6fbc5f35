//! Which of a store's hosts is tried next, and when.

use std::time::Duration;

use distlock_protocol::Time;
use distlock_protocol::chance::Chance;
use distlock_protocol::ledger::Host;

/// After a failure at least so long passes before the next try.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// And at most so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A store's hosts, of which one after the other is tried.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    next: usize,
    failures: u32,
    chance: Chance,
}

impl Hosts {
    /// Begins with any of them, so that agents spread.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn new(hosts: Vec<Host>, seed: u64) -> Self {
        assert!(!hosts.is_empty(), "a store has a host");
        let mut chance = Chance::new(seed);
        let next = chance.number_below(hosts.len() as u64) as usize;
        Self {
            hosts,
            next,
            failures: 0,
            chance,
        }
    }

    /// The one to try now.
    pub(crate) fn present(&self) -> &Host {
        &self.hosts[self.next]
    }

    /// The present one does not serve: when to try the next. The pause grows once all were tried.
    pub(crate) fn failed(&mut self, now: Time) -> Time {
        self.next = (self.next + 1) % self.hosts.len();
        let rounds = self.failures / self.hosts.len() as u32;
        self.failures = self.failures.saturating_add(1);
        let longest = LONGEST_PAUSE.min(SHORTEST_PAUSE * (2 << rounds.min(6)));
        now + SHORTEST_PAUSE + self.chance.below(longest.saturating_sub(SHORTEST_PAUSE))
    }

    /// The present one serves.
    pub(crate) fn worked(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        let name = name.to_owned();
        Host::Tcp { name, port: 1 }
    }

    #[test]
    fn all_are_tried_in_turn_and_the_pause_grows_to_its_bound() {
        let names = ["a", "b", "c"].map(host);
        let mut hosts = Hosts::new(names.to_vec(), 7);
        let first = hosts.present().clone();
        let mut seen = vec![];
        let mut longest = Duration::ZERO;
        for _ in 0..60 {
            seen.push(hosts.present().clone());
            let pause = hosts.failed(Time::ZERO).since(Time::ZERO);
            assert!(
                (SHORTEST_PAUSE..LONGEST_PAUSE).contains(&pause),
                "{pause:?}"
            );
            longest = longest.max(pause);
        }
        assert!(longest > Duration::from_secs(1));
        assert_eq!(seen[3], first);
        seen.truncate(3);
        seen.sort();
        assert_eq!(seen, names);
        hosts.worked();
        assert!(hosts.failed(Time::ZERO).since(Time::ZERO) < 2 * SHORTEST_PAUSE);
    }

    #[test]
    fn agents_begin_at_different_hosts() {
        let begins = |seed| Hosts::new(["a", "b", "c"].map(host).to_vec(), seed).next;
        let begun: std::collections::BTreeSet<usize> = (0..40).map(begins).collect();
        assert_eq!(begun.len(), 3);
    }
}
