//! The rules around the library, step by step, with its present release.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::ids::Epoch;
use crate::time::Time;
use crate::wire;

const HEARTBEAT: Duration = Duration::from_millis(50);
const ELECTION: Duration = Duration::from_millis(250);

fn id(id: u64) -> VoterId {
    VoterId(id)
}

fn ids<const N: usize>(ids: [u64; N]) -> BTreeSet<VoterId> {
    ids.map(VoterId).into()
}

fn proposal<const N: usize>(epoch: u32, voters: [u64; N]) -> Proposal {
    Proposal {
        epoch: Epoch::new(epoch).unwrap(),
        digest: [epoch as u8; 32],
        voters: ids(voters),
        view: vec![epoch as u8; 3],
    }
}

fn timing() -> Timing {
    Timing::new(HEARTBEAT, ELECTION)
}

/// Voters with a wire that delivers in order at once, and disks that are as fast unless stopped.
struct Group {
    now: Time,
    logs: BTreeMap<VoterId, RaftLog>,
    disks: BTreeMap<VoterId, LogRecord>,
    wire: VecDeque<(VoterId, LogMessage)>,
    decided: BTreeMap<VoterId, Vec<Decided>>,
    cut: BTreeSet<VoterId>,
    slow_disks: BTreeSet<VoterId>,
    /// All that was ever sent.
    sent: Vec<(VoterId, LogMessage)>,
}

impl Group {
    fn new<const N: usize>(voters: [u64; N]) -> Self {
        let mut group = Self {
            now: Time::ZERO,
            logs: BTreeMap::new(),
            disks: BTreeMap::new(),
            wire: VecDeque::new(),
            decided: BTreeMap::new(),
            cut: BTreeSet::new(),
            slow_disks: BTreeSet::new(),
            sent: Vec::new(),
        };
        for voter in voters.map(id) {
            let mut out = Vec::new();
            let log = RaftLog::found(voter, ids(voters), timing(), voter.0, group.now, &mut out);
            group.logs.insert(voter, log);
            group.act(voter, out);
        }
        group
    }

    /// Voters, of whom one leads.
    fn led<const N: usize>(voters: [u64; N]) -> (Self, u64) {
        let mut group = Self::new(voters);
        group.run(ELECTION * 4);
        let leader = group.leader();
        (group, leader)
    }

    fn join(&mut self, voter: u64) {
        let mut out = Vec::new();
        let log = RaftLog::join(id(voter), timing(), voter, self.now, &mut out);
        self.logs.insert(id(voter), log);
        self.act(id(voter), out);
    }

    fn restart(&mut self, voter: u64) {
        let bytes = postcard::to_allocvec(&self.disks[&id(voter)]).unwrap();
        let record = wire::decode_all(&bytes).unwrap();
        let log = RaftLog::restore(id(voter), record, timing(), voter + 100, self.now);
        self.logs.insert(id(voter), log.unwrap());
    }

    /// Does something with a voter's log, and what follows from it.
    fn step<T>(
        &mut self,
        voter: VoterId,
        step: impl FnOnce(&mut RaftLog, Time, &mut Vec<LogAction>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let log = self.logs.get_mut(&voter).unwrap();
        let result = step(log, self.now, &mut out);
        self.act(voter, out);
        result
    }

    fn timeout(&mut self, voter: u64) {
        self.step(id(voter), |log, now, out| log.timeout(now, out));
    }

    fn is_due(&mut self, voter: u64) -> bool {
        let now = self.now;
        self.log(voter).next_timeout().is_some_and(|at| at <= now)
    }

    fn log(&mut self, voter: u64) -> &mut RaftLog {
        self.logs.get_mut(&id(voter)).unwrap()
    }

    fn act(&mut self, voter: VoterId, out: Vec<LogAction>) {
        for action in out {
            match action {
                LogAction::Send(to, message) => {
                    assert_eq!(to, message.to);
                    self.sent.push((voter, message.clone()));
                    self.wire.push_back((voter, message));
                }
                LogAction::Persist(record) if self.slow_disks.contains(&voter) => {
                    drop(record);
                }
                LogAction::Persist(record) => {
                    self.disks.insert(voter, record);
                    self.step(voter, |log, now, out| log.persisted(now, out));
                }
                LogAction::Decided(decided) => {
                    self.decided.entry(voter).or_default().push(decided);
                }
                LogAction::LeaderChanged => {}
                LogAction::Broken(why) => panic!("voter {voter}: {why}"),
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, message)) = self.wire.pop_front() {
            let to = message.to;
            if self.cut.contains(&from) || self.cut.contains(&to) {
                continue;
            }
            if self.logs.contains_key(&to) {
                self.step(to, |log, now, out| log.receive(now, from, message, out));
            }
        }
    }

    /// Lets time pass, from one timeout to the next.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        self.deliver();
        loop {
            let due = self.logs.iter();
            let due = due.filter_map(|(&voter, log)| Some((log.next_timeout()?, voter)));
            let Some((at, voter)) = due.min().filter(|(at, _)| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.timeout(voter.0);
            self.deliver();
        }
        self.now = end;
    }

    /// The one leader among those that can be reached.
    fn leader(&self) -> u64 {
        let leaders = self.logs.iter();
        let leaders: Vec<_> = leaders
            .filter(|(voter, log)| log.is_leader() && !self.cut.contains(voter))
            .map(|(voter, _)| voter.0)
            .collect();
        let [leader] = leaders[..] else {
            panic!("leaders: {leaders:?}");
        };
        leader
    }

    fn propose<const N: usize>(
        &mut self,
        voter: u64,
        epoch: u32,
        voters: [u64; N],
    ) -> Result<(), NotNow> {
        let proposal = proposal(epoch, voters);
        self.step(id(voter), |log, now, out| log.propose(now, proposal, out))
    }

    /// The epochs that a voter was told of.
    fn epochs(&self, voter: u64) -> Vec<u32> {
        let decided = self.decided.get(&id(voter)).into_iter().flatten();
        decided
            .map(|decided| decided.proposal.epoch.as_u32())
            .collect()
    }
}

#[test]
fn a_view_is_decided_by_all_voters_and_once() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    assert_eq!(group.propose(leader, 7, [1, 2, 3]), Ok(()));
    group.run(Duration::ZERO);
    assert_eq!(group.propose(leader, 9, [1, 2, 3]), Ok(()));
    group.run(ELECTION * 10);
    for voter in [1, 2, 3] {
        assert_eq!(group.epochs(voter), [7, 9]);
        assert_eq!(group.log(voter).leader(), Some(id(leader)));
        let decided = group.log(voter).decided().unwrap();
        assert_eq!(decided.proposal, proposal(9, [1, 2, 3]));
        assert_eq!(
            decided.chain,
            [ViewRef {
                epoch: Epoch::new(7).unwrap(),
                digest: [7; 32]
            }]
        );
    }
}

/// Schedule 407815 had it lead in a term that it forgot, and another in the same term later.
#[test]
fn a_single_voter_leads_and_decides_at_once_but_not_before_it_is_durable() {
    let mut group = Group::new([1]);
    group.slow_disks.insert(id(1));
    group.run(Duration::ZERO);
    assert!(!group.log(1).is_leader() && group.log(1).leader().is_none());
    assert_eq!(group.propose(1, 1, [1]), Err(NotNow::NotLeader));
    let (now, mut out) = (group.now, Vec::new());
    group.log(1).persisted(now, &mut out);
    assert_eq!(out, [LogAction::LeaderChanged]);
    assert!(group.log(1).is_leader());
    group.slow_disks.insert(id(1));
    assert_eq!(group.propose(1, 1, [1]), Ok(()));
    assert_eq!(group.epochs(1), [0; 0]);
    group.step(id(1), |log, now, out| log.persisted(now, out));
    assert_eq!(group.epochs(1), [1]);
}

/// Where a disk takes about as long as an election, the next would begin as the votes of this one arrive.
#[test]
fn an_election_takes_its_time_from_when_the_call_for_votes_is_durable() {
    let mut group = Group::new([1, 2, 3]);
    group.slow_disks = ids([1]);
    group.now = group.log(1).next_timeout().unwrap();
    group.timeout(1);
    assert!(group.sent.is_empty(), "nothing of it is durable yet");
    group.now = group.log(1).next_timeout().unwrap() - Duration::from_millis(1);
    group.step(id(1), |log, now, out| log.persisted(now, out));
    assert_eq!(group.sent.len(), 2, "it calls for votes");
    let again = group.log(1).next_timeout().unwrap();
    assert!(again >= group.now + ELECTION);
}

#[test]
fn voters_come_and_go_one_at_a_time_from_a_view_in_force() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    let other = leader % 3 + 1;
    group.join(4);
    let changed = group.propose(leader, 1, [1, 2, 3, 4]);
    assert_eq!(changed, Err(NotNow::NotInstalled));
    assert_eq!(group.propose(other, 1, [1, 2, 3]), Err(NotNow::NotLeader));
    assert_eq!(group.propose(leader, 1, [1, 2, 3]), Ok(()));
    assert_eq!(group.propose(leader, 2, [1, 2, 3]), Err(NotNow::Busy));
    group.run(HEARTBEAT * 3);
    let decided = Epoch::new(1).unwrap();
    let again = group.propose(leader, 1, [1, 2, 3]);
    assert_eq!(again, Err(NotNow::OldEpoch { decided }));
    let changed = group.propose(leader, 2, [1, 2, 3, 4]);
    assert_eq!(changed, Err(NotNow::NotInstalled));

    group.log(leader).installed(decided);
    let two = group.propose(leader, 2, [1, 2, 3, 4, 5]);
    assert_eq!(two, Err(NotNow::TooManyChanges));
    let without: Vec<_> = (1..=3).filter(|voter| *voter != leader).collect();
    let removes = group.propose(leader, 2, [without[0], without[1]]);
    assert_eq!(removes, Err(NotNow::RemovesLeader));
    assert_eq!(group.propose(leader, 2, []), Err(NotNow::Size));
    assert_eq!(group.propose(leader, 2, [1, 2, 3, 4]), Ok(()));
    group.run(HEARTBEAT * 5);
    // The new voter has missed a view, and has its name.
    assert_eq!(group.epochs(4), [2]);
    let decided = group.log(4).decided().unwrap().clone();
    assert_eq!(decided.chain.len(), 1);

    // Four voters: two are no majority.
    group.cut = [id(without[0]), id(without[1])].into();
    assert_eq!(group.propose(leader, 3, [1, 2, 3, 4]), Ok(()));
    group.run(HEARTBEAT * 3);
    assert_eq!(group.epochs(leader), [1, 2]);
    group.cut.clear();
    group.run(ELECTION * 8);
    assert_eq!(group.epochs(4), [2, 3]);
    assert_eq!(group.epochs(leader), [1, 2, 3]);
}

#[test]
fn a_leader_hands_over_and_is_removed() {
    let (mut group, leader) = Group::led([1, 2]);
    let heir = 3 - leader;
    assert_eq!(group.propose(leader, 1, [1, 2]), Ok(()));
    group.run(HEARTBEAT * 3);
    let mut hand_over = |to| group.step(id(leader), |log, now, out| log.hand_over(now, to, out));
    assert_eq!(hand_over(id(leader)), Err(NotNow::NotVoter));
    assert_eq!(hand_over(id(heir)), Ok(()));
    // At once, though everybody hears of a leader that is well.
    group.deliver();
    assert_eq!(group.leader(), heir);

    group.log(heir).installed(Epoch::new(1).unwrap());
    assert_eq!(group.propose(heir, 2, [heir]), Ok(()));
    group.run(HEARTBEAT * 3);
    assert_eq!(group.epochs(leader), [1, 2]);
    // The one left needs nobody.
    group.cut.insert(id(leader));
    assert_eq!(group.propose(heir, 3, [heir]), Ok(()));
    group.run(HEARTBEAT);
    assert_eq!(group.epochs(heir), [1, 2, 3]);
}

/// It asks for votes in ever new terms, and would topple every leader.
#[test]
fn a_voter_that_was_removed_while_away_is_told_so() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    assert_eq!(group.propose(leader, 1, [1, 2, 3]), Ok(()));
    group.run(HEARTBEAT * 3);
    let gone = leader % 3 + 1;
    let left: Vec<_> = (1..=3).filter(|voter| *voter != gone).collect();
    group.cut.insert(id(gone));
    group.run(ELECTION * 8);
    group.log(leader).installed(Epoch::new(1).unwrap());
    assert_eq!(group.propose(leader, 2, [left[0], left[1]]), Ok(()));
    group.run(ELECTION * 8);
    assert_eq!(group.epochs(gone), [1]);
    let term = group.log(leader).term();
    assert!(group.log(gone).term() > term);

    group.cut.clear();
    group.run(ELECTION * 8);
    assert_eq!(group.epochs(gone), [1, 2]);
    assert_eq!(group.log(gone).next_timeout(), None);
    assert_eq!((group.leader(), group.log(leader).term()), (leader, term));
}

/// A voter that hears nobody, but is heard, topples nobody; a leader of the kind gives up.
#[test]
fn who_hears_nobody_neither_topples_nor_leads() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    let deaf = leader % 3 + 1;
    let term = group.log(leader).term();
    for _ in 0..100 {
        // What is for it gets lost before the others see what it sends.
        group.wire.retain(|(_, message)| message.to != id(deaf));
        if group.is_due(deaf) {
            group.timeout(deaf);
        }
        group.now = group.now + HEARTBEAT;
        step_others(&mut group, deaf);
    }
    assert!(group.log(deaf).term() > term + 5);
    assert_eq!(
        (group.log(leader).is_leader(), group.log(leader).term()),
        (true, term)
    );

    let (mut group, leader) = Group::led([1, 2, 3]);
    for _ in 0..100 {
        group.now = group.now + HEARTBEAT;
        step_others(&mut group, leader);
        if group.is_due(leader) {
            group.timeout(leader);
        }
    }
    assert!(!group.log(leader).is_leader());
    group.cut.insert(id(leader));
    assert_ne!(group.leader(), leader);
}

/// Everybody's timeouts but `deaf`'s, which nothing reaches.
fn step_others(group: &mut Group, deaf: u64) {
    for voter in 1..=3 {
        if voter != deaf && group.is_due(voter) {
            group.timeout(voter);
        }
    }
    while let Some((from, message)) = group.wire.pop_front() {
        let to = message.to;
        if to != id(deaf) {
            group.step(to, |log, now, out| log.receive(now, from, message, out));
        }
    }
}

#[test]
fn all_voters_restart_and_go_on_where_they_were() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    assert_eq!(group.propose(leader, 5, [1, 2, 3]), Ok(()));
    group.run(HEARTBEAT * 3);
    for voter in [1, 2, 3] {
        group.restart(voter);
        assert_eq!(
            group.log(voter).decided().unwrap().proposal.epoch.as_u32(),
            5
        );
    }
    group.run(ELECTION * 4);
    let leader = group.leader();
    let again = group.propose(leader, 5, [1, 2, 3]);
    assert!(matches!(again, Err(NotNow::OldEpoch { .. })));
    assert_eq!(group.propose(leader, 6, [1, 2, 3]), Ok(()));
    group.run(HEARTBEAT * 3);
    // What was durable is not told again.
    assert_eq!(group.epochs(2), [5, 6]);
}

/// Who was to be told of the decision by a leader that died then moves the voters in its place;
/// if it is the one to be removed, it lets another do it.
#[test]
fn the_voters_are_moved_by_whoever_leads_next() {
    for removed_leads in [false, true] {
        let (mut group, leader) = Group::led([1, 2, 3]);
        let gone = leader % 3 + 1;
        let left: Vec<_> = (1..=3).filter(|voter| *voter != gone).collect();
        assert_eq!(group.propose(leader, 1, [1, 2, 3]), Ok(()));
        group.run(HEARTBEAT * 3);
        group.log(leader).installed(Epoch::new(1).unwrap());
        assert_eq!(group.propose(leader, 2, [left[0], left[1]]), Ok(()));
        // The leader dies when it has the first answer: it has decided, and the others have not.
        let mut decided = false;
        while let Some((from, message)) = group.wire.pop_front() {
            let to = message.to;
            let (now, mut out) = (group.now, Vec::new());
            group.log(to.0).receive(now, from, message, &mut out);
            decided = to == id(leader)
                && out
                    .iter()
                    .any(|action| matches!(action, LogAction::Persist(_)));
            if decided {
                break;
            }
            group.act(to, out);
        }
        assert!(decided);
        group.wire.clear();
        group.cut.insert(id(leader));
        let heir = if removed_leads {
            gone
        } else {
            6 - leader - gone
        };
        while !group.log(heir).is_leader() {
            let now = group.log(heir).next_timeout().unwrap().max(group.now) + ELECTION;
            group.now = now;
            group.timeout(heir);
            group.deliver();
            if removed_leads && group.log(6 - leader - gone).is_leader() {
                // The removed one led for a moment, and has let the other lead.
                break;
            }
        }
        group.restart(leader);
        group.cut.clear();
        group.run(ELECTION * 8);
        assert_ne!(group.leader(), gone, "who is removed does not lead");
        for voter in left {
            assert_eq!(group.epochs(voter), [1, 2]);
            let decided = group.log(voter).decided().unwrap();
            assert!(!decided.proposal.voters.contains(&id(gone)));
        }
        // It needs the removed one no more.
        group.cut.insert(id(gone));
        let leader = group.leader();
        let voters = [leader, 6 - leader - gone];
        assert_eq!(group.propose(leader, 3, voters), Ok(()));
        group.run(HEARTBEAT * 3);
        assert_eq!(group.epochs(leader), [1, 2, 3]);
    }
}

#[test]
fn nothing_is_said_that_is_not_durable() {
    let mut group = Group::new([1, 2, 3]);
    for voter in [1, 2, 3] {
        group.slow_disks.insert(id(voter));
        let message = LogMessage {
            to: id(voter),
            term: 9,
            body: Body::Vote {
                last: library::Position { term: 8, index: 5 },
                handed_over: false,
            },
        };
        let (now, mut out) = (group.now, Vec::new());
        let from = id(voter % 3 + 1);
        group
            .log(voter)
            .receive(now, from, message.clone(), &mut out);
        let [LogAction::Persist(record)] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!((record.term, record.vote), (9, Some(from)));
        // Asked once more it does not answer faster.
        let mut later = Vec::new();
        group.log(voter).receive(now, from, message, &mut later);
        assert_eq!(later, []);
        group.log(voter).persisted(now, &mut later);
        let granted = Body::Voted { granted: true };
        let yes = |action: &LogAction| matches!(action, LogAction::Send(to, message) if *to == from && message.body == granted);
        assert!(later.len() == 2 && later.iter().all(yes), "{later:?}");
    }
}

#[test]
fn records_that_contradict_themselves_are_refused() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    assert_eq!(group.propose(leader, 5, [1, 2, 3]), Ok(()));
    group.run(HEARTBEAT * 3);
    assert_eq!(group.propose(leader, 6, [1, 2, 3]), Ok(()));
    let good = group.disks[&id(leader)].clone();
    assert!(matches!(good.entries[..], [LogEntry::View(_)]), "{good:?}");
    let restore = |record: LogRecord| {
        RaftLog::<library::Noraft>::restore(id(leader), record, timing(), 1, Time::ZERO)
    };
    assert!(restore(good.clone()).is_ok());
    let refused = |change: fn(&mut LogRecord), why: BadRecord| {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(restore(bad).err(), Some(why));
    };
    refused(
        |bad| bad.voter = id(9),
        BadRecord::OtherVoter { voter: id(9) },
    );
    refused(|bad| bad.term = 0, BadRecord::Snapshot);
    refused(|bad| bad.term = u64::MAX, BadRecord::Snapshot);
    refused(|bad| bad.snapshot.voters.now.clear(), BadRecord::Snapshot);
    refused(
        |bad| bad.snapshot.position.index = u64::MAX,
        BadRecord::Snapshot,
    );
    refused(
        |bad| bad.entries.push(LogEntry::Term(0)),
        BadRecord::Entries,
    );
    refused(
        |bad| bad.entries.push(bad.entries[0].clone()),
        BadRecord::Entries,
    );
    let nobody = LogEntry::Voters(library::Voters::default());
    let mut bad = good.clone();
    bad.entries.push(nobody);
    assert_eq!(restore(bad).err(), Some(BadRecord::Entries));
}

/// Messages of a run with changes, each damaged in every byte: none may do harm, and the group
/// goes on. The library's own assertions are on.
#[test]
fn garbage_does_no_harm() {
    let (mut group, leader) = Group::led([1, 2, 3]);
    assert_eq!(group.propose(leader, 1, [1, 2, 3]), Ok(()));
    group.run(HEARTBEAT * 3);
    group.log(leader).installed(Epoch::new(1).unwrap());
    group.join(4);
    assert_eq!(group.propose(leader, 2, [1, 2, 3, 4]), Ok(()));
    group.run(HEARTBEAT * 3);
    let mut seen = BTreeSet::new();
    let sent: Vec<_> = core::mem::take(&mut group.sent);
    let mut damaged = 0;
    for (from, message) in sent {
        let bytes = postcard::to_allocvec(&message).unwrap();
        assert_eq!(wire::decode_all(&bytes), Ok(message.clone()));
        if !seen.insert(bytes.clone()) {
            continue;
        }
        for at in 0..bytes.len() {
            for byte in [0, 1, 2, 3, 5, 8, 0x7F, 0x80, 0xFF] {
                let mut bad = bytes.clone();
                bad[at] = byte;
                let Ok(bad) = wire::decode_all::<LogMessage>(&bad) else {
                    continue;
                };
                damaged += 1;
                let to = message.to;
                let record = group.disks[&to].clone();
                let log = RaftLog::<library::Noraft>::restore(to, record, timing(), 1, group.now);
                let (mut log, mut out) = (log.unwrap(), Vec::new());
                let bad = LogMessage { to, ..bad };
                log.receive(group.now, from, bad.clone(), &mut out);
                log.receive(group.now, from, bad, &mut out);
                log.persisted(group.now, &mut out);
                if let Some(at) = log.next_timeout() {
                    log.timeout(at, &mut out);
                }
                let broken = out
                    .iter()
                    .any(|action| matches!(action, LogAction::Broken(_)));
                assert!(!broken, "{message:?} at {at}: {byte}");
            }
        }
    }
    assert!(damaged > 1000, "{damaged}");
}
