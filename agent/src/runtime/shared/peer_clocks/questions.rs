//! One member is asked for its time, one after the other; what it answers is noted.

use crate::protocol::clock::Reply;
use crate::protocol::{NodeId, Time};
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::group_status::Note;
use crate::runtime::shared::peer_clocks::{EVERY, PeerClock, in_words};

impl CoreGuard<'_> {
    /// Asks the next member for its time, if it is time for that.
    pub(crate) fn ask_for_time(&mut self) {
        let now = clock::now();
        let is_over = self.end_of_session().is_some();
        let Some(members) = self.core.members_mut() else {
            return;
        };
        let clocks = &mut members.peer_clocks;
        match clocks.next {
            _ if is_over => clocks.next = None,
            Some(next) if next > now => {}
            // A group of one has nobody to ask.
            _ if members.membership.members().len() < 2 => clocks.next = None,
            next => {
                clocks.next = Some(now + EVERY);
                if next.is_some() {
                    self.ask_next(now);
                }
            }
        }
    }

    fn ask_next(&mut self, now: Time) {
        let others: Vec<_> = self.heard().into_iter().collect();
        let Some(members) = self.core.members_mut() else {
            return;
        };
        let clocks = &mut members.peer_clocks;
        let last = clocks.last;
        let after = others.iter().find(|&&id| Some(id) > last);
        let Some(&to) = after.or(others.first()) else {
            return;
        };
        clocks.last = Some(to);
        let known = clocks.peers.entry(to);
        let asked_ns = known.or_insert_with(|| PeerClock::new(0)).filter.ask(now);
        self.send_note(to, &Note::AskTime { asked_ns });
    }

    /// Answers a member that asks for the time here.
    pub(crate) fn answer_time(&mut self, to: NodeId, asked_ns: u64) {
        let received_ns = clock::now().as_nanos();
        let Some(members) = self.core.members() else {
            return;
        };
        let incarnation = members.node.incarnation().0;
        let reply = Reply {
            asked_ns,
            received_ns,
            answered_ns: clock::now().as_nanos(),
        };
        self.send_note(to, &Note::Time { incarnation, reply });
    }

    /// A member answers what time it is there.
    pub(crate) fn hear_time(&mut self, from: NodeId, incarnation: u64, reply: Reply) {
        self.take_time(from, incarnation, reply, clock::now());
    }

    /// The same; the answer came at `now`.
    fn take_time(&mut self, from: NodeId, incarnation: u64, reply: Reply, now: Time) {
        let core = &mut *self.core;
        let members = core.arbiter.members_mut();
        let Some(known) = members.and_then(|its| its.peer_clocks.peers.get_mut(&from)) else {
            return;
        };
        // What was not asked for or does not fit together tells nothing; another answer comes soon.
        if known.filter.receive(reply, now).is_err() {
            return;
        }
        if known.incarnation != incarnation {
            // What the incarnation before has said is of another clock.
            *known = PeerClock::new(incarnation);
            known.filter.ask(Time::from_nanos(reply.asked_ns));
            let _ = known.filter.receive(reply, now);
        }
        known.watch.receive(reply, now);
        let rate = known.watch.rate();
        let is_news = core::mem::discriminant(&rate) != core::mem::discriminant(&known.told);
        known.told = rate;
        if let Some(tracer) = &mut core.tracer
            && let Some(estimate) = known.filter.estimate(now)
        {
            tracer.note_clock(from, incarnation, &estimate);
        }
        match in_words(rate).filter(|_| is_news) {
            Some(words) => tracing::warn!(
                event = "clock-rate",
                member = from.as_u16(),
                "member {from}: {words}; a holder whose clock is too slow can believe in its lease \
                 when another is let in already, and only fences tell them apart: see to the \
                 clocks of both hosts"
            ),
            None if is_news => tracing::warn!(
                event = "clock-rate-mended",
                member = from.as_u16(),
                "member {from}: its clock keeps to its bounds again"
            ),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use tracing::subscriber;

    use super::*;
    use crate::protocol::Settings;
    use crate::runtime::warnings::Warnings;
    use crate::runtime::{Address, Agent, Options};

    fn id(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    /// Member `me` of a group of two.
    fn agent(directory: &Path, me: u16) -> Agent {
        let address = |id: u16| Address::unix(directory.join(id.to_string())).unwrap();
        let members = BTreeMap::from([1, 2].map(|member| (id(member), address(member))));
        let state = directory.join(format!("state-{me}"));
        Agent::start(Options::new(id(me), members, Settings::new("test"), state)).unwrap()
    }

    fn detail(agent: &Agent) -> String {
        let status = agent.status().unwrap();
        let member = status.members.into_iter().find(|member| member.id == 2);
        member.unwrap().detail
    }

    #[test]
    fn members_ask_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let agents = [1, 2].map(|me| agent(directory.path(), me));
        let deadline = clock::now() + Duration::from_secs(30);
        let estimate = loop {
            let mut core = agents[0].shared.lock_core();
            let now = clock::now();
            let clocks = &mut core.core.members_mut().unwrap().peer_clocks;
            let known = clocks.peers.get(&id(2));
            if let Some(estimate) = known.and_then(|known| known.filter.estimate(now)) {
                break estimate;
            }
            assert!(now < deadline, "no answer came");
            // As if the ten seconds were over.
            clocks.next = Some(now);
            core.finish_as_application();
            std::thread::sleep(Duration::from_millis(50));
        };
        // It is one clock.
        assert!(u128::from(estimate.offset_ns.unsigned_abs()) <= estimate.error.as_nanos());
        assert_eq!(
            agents[0]
                .shared
                .lock_core()
                .core
                .members()
                .unwrap()
                .peer_clocks
                .complaint(id(2)),
            None
        );
    }

    /// Answers of a clock that counts `percent` of what this one does.
    fn hear(agent: &Agent, percent: u64, incarnation: u64) {
        let start = 1_000_000_000_000;
        for i in 1..=3 {
            let mut core = agent.shared.lock_core();
            let now = Time::from_nanos(start + i * 20_000_000_000);
            let clocks = &mut core.core.members_mut().unwrap().peer_clocks;
            let known = clocks.peers.entry(id(2));
            let known = known.or_insert_with(|| PeerClock::new(incarnation));
            let asked_ns = known.filter.ask(now);
            let there = i * 20_000_000_000 / 100 * percent;
            let reply = Reply {
                asked_ns,
                received_ns: there,
                answered_ns: there + 1_000,
            };
            core.take_time(id(2), incarnation, reply, now + Duration::from_millis(1));
        }
    }

    #[test]
    fn a_drift_beyond_the_bound_is_told_and_another_incarnation_is_another_clock() {
        let directory = tempfile::tempdir().unwrap();
        let agent = agent(directory.path(), 1);
        hear(&agent, 109, 1);
        assert_eq!(detail(&agent), "");
        hear(&agent, 120, 2);
        let told = detail(&agent);
        assert!(
            told.starts_with("its clock gains 19.9 % on this member's"),
            "{told}"
        );
        hear(&agent, 100, 3);
        assert_eq!(detail(&agent), "");
        hear(&agent, 80, 4);
        let told = detail(&agent);
        assert!(
            told.starts_with("this member's clock gains 24.9 % on its"),
            "{told}"
        );
        hear(&agent, 0, 5);
        assert!(detail(&agent).contains("stood still"));
    }

    /// Each answer says how the member's clock runs; the log, when that changes.
    #[test]
    fn a_drift_beyond_the_bound_is_logged_once() {
        let directory = tempfile::tempdir().unwrap();
        let agent = agent(directory.path(), 1);
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        subscriber::with_default(warnings, || {
            hear(&agent, 100, 1);
            assert_eq!(*told.lock().unwrap(), "");
            hear(&agent, 120, 2);
        });
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("its clock gains 19.9 %"), "{told}");
    }
}
