//! What a stay in the core's mutex counts and measures, and the whole of it for whoever asks.

use crate::protocol::clock::Rate;
use crate::runtime::api::audit::{AuditEvent, Auditor};
use crate::runtime::api::error::StatusError;
use crate::runtime::api::metrics::Metrics;
use crate::runtime::api::status::MemberState;
use crate::runtime::os::clock;
use crate::runtime::shared::arbiter::{Arbiter, Members};
use crate::runtime::shared::core_guard::{CoreGuard, Shared};
use crate::runtime::shared::entry::{Entry, Listed};

impl Shared {
    /// What was counted and measured.
    pub(crate) fn metrics(&self) -> Result<Metrics, StatusError> {
        if self.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        let core = self.lock_core();
        match core.end_of_session() {
            Some(end) => Err(StatusError::Closed(end.clone())),
            None => Ok(core.metrics()),
        }
    }
}

impl CoreGuard<'_> {
    /// A caller has left, if it was inside.
    pub(super) fn was_held(&mut self, entry: &Entry) {
        if let Some(held) = entry.held {
            let time = clock::now().since(held.since.at);
            self.core.measured.of(&entry.lock).was_held(time);
        }
    }

    /// What a caller had is void for that reason, if it was inside.
    pub(super) fn loses(&mut self, entry: &Entry, why: &'static str) {
        if entry.held.is_some() {
            self.was_held(entry);
            self.core.measured.loses(why);
            self.audit(|core| AuditEvent::Lost {
                entry: core.audited(entry),
                why,
            });
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let (core, identity) = (&*self.core, &self.shared.identity);
        let now = clock::now();
        let mut metrics = Metrics {
            group: identity.settings.group.clone(),
            member: identity.told(),
            lease: identity.settings.lease,
            lease_remaining: self.lease_remaining(),
            ..Metrics::default()
        };
        match &core.arbiter {
            Arbiter::Members(members) => self.add_members(members, &mut metrics),
            #[cfg(feature = "store")]
            Arbiter::Store(store) => metrics.has_quorum = store.answers(),
        }
        if let Some(clients) = &core.clients {
            metrics.clients = Some(clients.connected);
            metrics.clients_refused = clients.dropped.clone();
        }
        let counters = self.counters();
        metrics.datagrams_sent = counters.transport.sent;
        metrics.datagrams_received = counters.transport.received;
        metrics.handshakes = counters.transport.handshakes;
        let dropped = counters.dropped();
        metrics.datagrams_dropped = dropped
            .map(|(why, count)| (why.to_owned(), count))
            .collect();
        metrics.audit_lost = core.auditor.as_ref().map(Auditor::lost);
        core.measured.add_to(&mut metrics);
        for lending in core.lendings.values().filter(|its| its.loan.is_lent()) {
            let entries = u64::from(lending.loan.entries());
            let of_lock = metrics.of(&lending.lock);
            of_lock.by_loan += entries;
            of_lock.exclusive += entries;
        }
        let entries = core.requests.values().map(Listed::from);
        for entry in entries.chain(self.listed_by_loan()) {
            let of_lock = metrics.of(entry.lock);
            if entry.held.is_some() {
                of_lock.holders += 1;
            } else {
                of_lock.waiters += 1;
                of_lock.oldest_wait = of_lock.oldest_wait.max(now.since(entry.asked.at));
            }
        }
        metrics
    }
}

impl CoreGuard<'_> {
    /// What was counted and measured of the members.
    fn add_members(&self, its: &Members, metrics: &mut Metrics) {
        let now = clock::now();
        let quorum = its.node.quorum(now);
        metrics.epoch = its.node.view().map_or(0, |view| view.epoch.as_u32());
        metrics.has_quorum = quorum.is_ok();
        // Also those that nobody is in: a number that is sometimes not there says nothing.
        metrics.members = MemberState::ALL.map(|state| (state, 0)).into();
        for &id in its.membership.members().keys() {
            *metrics.members.entry(self.member_state(id)).or_default() += 1;
        }
        let voters = its.node.voters(now);
        // One that is silent votes as far as anybody knows, and cannot be counted on.
        let is_missing = |id| quorum.missing.iter().any(|it| it.member == id);
        let voting = voters
            .iter()
            .filter(|(id, votes)| **votes && !is_missing(**id));
        metrics.voting = voting.count() as u64;
        metrics.not_voting = voters.len() as u64 - metrics.voting;
        let rates = its.peer_clocks.rates();
        metrics.clock_rates = rates
            .map(|(id, rate)| (id.as_u16(), gain_ppm(rate)))
            .collect();
    }
}

/// How much another clock is proven to gain on this one.
fn gain_ppm(rate: Rate) -> i64 {
    match rate {
        Rate::Within => 0,
        Rate::Fast(ppm) => i64::try_from(ppm).unwrap_or(i64::MAX),
        Rate::Slow(ppm) => i64::try_from(ppm).map_or(i64::MIN, |ppm| -ppm),
    }
}
