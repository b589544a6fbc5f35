//! Who stands under whom, and what becomes of it, step by step.

use alloc::collections::VecDeque;
use alloc::vec;

use super::*;
use crate::ids::{LockName, RequestId};
use crate::lock::{Algorithm, Last, LockSpec, LockSummary, Mode};

const NOW: Time = Time::from_nanos(1_000_000_000);

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn nodes(ids: impl IntoIterator<Item = u16>) -> BTreeSet<NodeId> {
    ids.into_iter().map(node).collect()
}

/// A group of sources of views, with wires that deliver in order, or not at all.
struct Group {
    now: Time,
    sources: BTreeMap<NodeId, Presumed>,
    wire: VecDeque<(NodeId, NodeId, ViewMessage)>,
    /// Pairs between which what is sent is kept for later.
    cut: BTreeSet<(NodeId, NodeId)>,
    kept: Vec<(NodeId, NodeId, ViewMessage)>,
    /// What each member tells of itself.
    holds: BTreeMap<NodeId, Summary>,
    installed: BTreeMap<NodeId, (View, Summary)>,
    installs: usize,
    /// Whom each member does not know, as it says.
    unlisted: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Group {
    /// All members are up and ready.
    fn new(size: u16, lock_delay: Duration) -> Self {
        let mut group = Self {
            now: NOW,
            sources: BTreeMap::new(),
            wire: VecDeque::new(),
            cut: BTreeSet::new(),
            kept: Vec::new(),
            holds: BTreeMap::new(),
            installed: BTreeMap::new(),
            installs: 0,
            unlisted: BTreeMap::new(),
        };
        let members = nodes(1..=size);
        for &node in &members {
            let me = Member {
                node,
                incarnation: Incarnation(1),
            };
            let epoch = Epoch::new(10).unwrap();
            let source = Presumed::new(me, &members, lock_delay, epoch, UncleanRestart::default());
            group.sources.insert(node, source);
        }
        for &one in &members {
            for &other in members.iter().filter(|&&other| other != one) {
                group.step(one, |source, out| {
                    source.peer_up(NOW, other, Incarnation(1), out);
                });
            }
        }
        for &node in &members {
            group.step(node, |source, out| source.ready(NOW, out));
        }
        group.deliver();
        group
    }

    fn step(&mut self, at: NodeId, step: impl FnOnce(&mut Presumed, &mut Vec<Action>)) {
        let now = self.now;
        let Some(source) = self.sources.get_mut(&at) else {
            return;
        };
        let mut actions = Vec::new();
        step(source, &mut actions);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let source = self.sources.get_mut(&at).unwrap();
            let mut more = Vec::new();
            match action {
                Action::Send(to, message) => self.wire.push_back((at, to, message)),
                Action::Persist(_) => source.persisted(now, &mut more),
                Action::Summarise(_) => {
                    let summary = self.holds.get(&at).cloned().unwrap_or_default();
                    source.summarised(now, summary, &mut more);
                }
                Action::Install(view, table) => {
                    self.installs += 1;
                    self.installed.insert(at, ((*view).clone(), table));
                }
                Action::Unlisted(nodes) => {
                    self.unlisted.insert(at, nodes);
                }
                _ => {}
            }
            actions.extend(more);
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            if self.cut.contains(&(from, to)) {
                self.kept.push((from, to, message));
            } else {
                let now = self.now;
                self.step(to, |source, out| source.receive(now, from, message, out));
            }
        }
    }

    fn kill(&mut self, id: u16) {
        self.sources.remove(&node(id));
        self.wire.retain(|(from, _, _)| *from != node(id));
    }

    /// `at` takes `whom` for gone.
    fn presume(&mut self, at: u16, whom: u16) {
        self.step(node(at), |source, out| {
            source.peer_suspected(NOW, node(whom), out)
        });
        self.deliver();
    }

    /// Nothing passes between the sides, and each takes the other for gone.
    fn part(&mut self, one: &[u16], other: &[u16]) {
        for (&a, &b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            self.cut.extend([(node(a), node(b)), (node(b), node(a))]);
        }
        for (&a, &b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            self.presume(a, b);
            self.presume(b, a);
        }
    }

    /// What was kept arrives, and with the first of it each hears the other again.
    fn heal(&mut self) {
        let cut = core::mem::take(&mut self.cut);
        for (from, to) in cut {
            self.step(to, |source, out| source.peer_alive(NOW, from, out));
        }
        // Links deliver in order.
        let mut kept: VecDeque<_> = core::mem::take(&mut self.kept).into();
        kept.append(&mut self.wire);
        self.wire = kept;
        self.deliver();
    }

    /// The members of the view that is in force at `id`; none if there is none.
    fn view(&self, id: u16) -> BTreeSet<NodeId> {
        let view = self.sources[&node(id)].view();
        view.map(|view| view.nodes().collect()).unwrap_or_default()
    }

    /// These, and nobody else, are in one view.
    #[track_caller]
    fn are_together<const N: usize>(&self, ids: [u16; N]) {
        for id in ids {
            assert_eq!(self.view(id), nodes(ids), "{id}");
        }
        let epochs = ids.map(|id| self.sources[&node(id)].epoch());
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    }

    /// `id` holds the lock by itself.
    fn hold(&mut self, id: u16) -> RequestId {
        let request = RequestId {
            node: node(id),
            incarnation: Incarnation(1),
            seq: 1,
        };
        let lock = LockSummary {
            spec: LockSpec::exclusive(Algorithm::Bakery),
            holders: vec![request],
            held: Mode::Exclusive,
            waiters: Vec::new(),
            last: Last::default(),
            abandoned: false,
            suspects: Vec::new(),
        };
        let summary = Summary {
            locks: BTreeMap::from([(LockName::new("x").unwrap(), lock)]),
            is_complete: true,
            is_continued: true,
            ..Summary::default()
        };
        self.holds.insert(node(id), summary);
        request
    }
}

#[test]
fn all_that_are_there_are_in_one_view_under_the_lowest() {
    let group = Group::new(4, Duration::ZERO);
    group.are_together([1, 2, 3, 4]);
    assert_eq!(group.installs, 4, "one view");
}

#[test]
fn nobody_goes_on_before_all_that_remain_have_given_up_the_dead() {
    let mut group = Group::new(3, Duration::ZERO);
    group.kill(1);
    group.presume(3, 1);
    let why = "2 may be inside, and counts on 1";
    assert_eq!(group.view(3), nodes(1..=3), "{why}");
    group.presume(2, 1);
    for id in [2, 3] {
        assert_eq!(group.view(id), nodes([2, 3]));
        let (view, _) = &group.installed[&node(id)];
        assert_eq!(view.unclean, [node(1)]);
    }
}

#[test]
fn who_left_is_not_taken_for_dead() {
    let mut group = Group::new(3, Duration::ZERO);
    group.kill(3);
    for id in [2, 1] {
        group.step(node(id), |source, out| source.peer_left(NOW, node(3), out));
        group.deliver();
    }
    assert_eq!(group.view(1), nodes([1, 2]));
    assert!(group.installed[&node(1)].0.unclean.is_empty());
}

#[test]
fn a_coordinator_that_dies_between_freeze_and_install_is_replaced() {
    let mut group = Group::new(4, Duration::ZERO);
    group.kill(4);
    // The others hear of the round, and nothing more.
    for id in [2, 3] {
        group.cut.insert((node(id), node(1)));
        group.presume(id, 4);
    }
    group.presume(1, 4);
    for id in [2, 3] {
        assert!(group.view(id).is_empty(), "frozen");
    }
    group.kill(1);
    group.presume(3, 1);
    group.presume(2, 1);
    for id in [2, 3] {
        assert_eq!(group.view(id), nodes([2, 3]));
        assert_eq!(group.installed[&node(id)].0.unclean, [node(1), node(4)]);
    }
}

#[test]
fn two_sides_go_on_and_come_together_and_the_lowest_keeps_what_both_hold() {
    let mut group = Group::new(5, Duration::ZERO);
    group.part(&[1, 4], &[2, 3, 5]);
    assert_eq!(group.view(4), nodes([1, 4]));
    assert_eq!(group.view(5), nodes([2, 3, 5]));
    group.hold(4);
    let keeps = group.hold(3);
    group.heal();
    group.are_together([1, 2, 3, 4, 5]);
    for (view, table) in group.installed.values() {
        assert!(view.unclean.is_empty(), "nobody died");
        let lock = table.locks.values().next().unwrap();
        assert_eq!(lock.holders, [keeps]);
    }
}

/// The lowest heard everybody all the time, and has the view of all; the others went on without it.
#[test]
fn a_cut_in_one_direction_heals() {
    let mut group = Group::new(3, Duration::ZERO);
    group.cut.extend([(node(1), node(2)), (node(1), node(3))]);
    group.presume(2, 1);
    group.presume(3, 1);
    assert_eq!(group.view(3), nodes([2, 3]));
    assert_eq!(group.view(1), nodes(1..=3));
    group.heal();
    group.are_together([1, 2, 3]);
}

/// 2 hears both others, 1 and 3 do not hear each other: 3 cannot know who is inside at 2, and waits.
#[test]
fn who_hears_only_those_that_follow_another_waits_and_says_for_whom() {
    let mut group = Group::new(3, Duration::ZERO);
    group.part(&[1], &[3]);
    assert_eq!(group.view(1), nodes([1, 2]));
    assert_eq!(group.view(2), nodes([1, 2]));
    assert_eq!(group.view(3), nodes(1..=3), "the last one it knows of");
    let lacking = { group.sources[&node(3)].overview(NOW, &[node(1)]) }.lacking();
    assert_eq!(
        lacking.iter().map(|it| it.member).collect::<Vec<_>>(),
        [node(1)]
    );
    group.heal();
    group.are_together([1, 2, 3]);
}

#[test]
fn before_the_first_view_members_presumed_gone_are_not_waited_for() {
    let me = Member {
        node: node(1),
        incarnation: Incarnation(1),
    };
    let (epoch, restart) = (Epoch::new(10).unwrap(), UncleanRestart::default());
    let mut source = Presumed::new(me, &nodes(1..=3), Duration::ZERO, epoch, restart);
    let mut out = Vec::new();
    source.ready(NOW, &mut out);
    source.peer_suspected(NOW, node(3), &mut out);
    assert!(source.view().is_none());
    let lacking = { source.overview(NOW, &[node(2), node(3)]) }.lacking();
    assert_eq!(
        lacking.iter().map(|it| it.member).collect::<Vec<_>>(),
        [node(2)]
    );
}

#[test]
fn a_member_that_another_does_not_know_stays_outside() {
    let mut group = Group::new(3, Duration::ZERO);
    let me = Member {
        node: node(2),
        incarnation: Incarnation(2),
    };
    // The file of 2 lacks 3.
    group.kill(2);
    for id in [1, 3] {
        group.step(node(id), |source, out| source.peer_down(NOW, node(2), out));
    }
    let (epoch, restart) = (Epoch::new(10).unwrap(), UncleanRestart::default());
    let source = Presumed::new(me, &nodes([1, 2]), Duration::ZERO, epoch, restart);
    group.sources.insert(node(2), source);
    group.cut.extend([(node(2), node(3)), (node(3), node(2))]);
    group.step(node(2), |source, out| {
        source.peer_up(NOW, node(1), Incarnation(1), out);
        source.ready(NOW, out);
    });
    group.step(node(1), |source, out| {
        source.peer_up(NOW, node(2), Incarnation(2), out)
    });
    group.deliver();
    assert_eq!(group.view(1), nodes([1, 2]));
    assert_eq!(group.view(2), nodes([1, 2]));
    assert!(group.installs < 20, "it is settled");
    assert_eq!(group.unlisted, [(node(2), vec![node(3)])].into());
}

#[test]
fn after_a_loss_nobody_enters_before_the_delay_is_over() {
    let delay = Duration::from_secs(15);
    let mut group = Group::new(3, delay);
    assert_eq!(group.view(2), nodes(1..=3), "nobody was lost");
    group.kill(1);
    group.presume(3, 1);
    group.presume(2, 1);
    assert!(group.view(2).is_empty());
    assert_eq!(group.sources[&node(2)].next_timeout(NOW), Some(NOW + delay));
    let before = NOW + (delay - Duration::from_nanos(1));
    group.step(node(2), |source, out| source.timeout(before, out));
    assert!(group.view(2).is_empty());
    group.step(node(2), |source, out| source.timeout(NOW + delay, out));
    group.deliver();
    assert_eq!(group.view(3), nodes([2, 3]));
}

#[test]
fn a_wish_for_a_new_epoch_is_granted_once() {
    let mut group = Group::new(2, Duration::ZERO);
    let installs = group.installs;
    group.step(node(2), |source, out| {
        source.want_view(NOW, out);
        source.want_view(NOW, out);
    });
    group.deliver();
    assert_eq!(group.installs, installs + 2);
    assert_eq!(group.view(2), nodes([1, 2]));
}

#[test]
fn nothing_is_formed_by_one_that_leaves() {
    let mut group = Group::new(2, Duration::ZERO);
    group.step(node(1), |source, out| source.leave(NOW, out));
    let installs = group.installs;
    group.presume(1, 2);
    assert_eq!(group.installs, installs);
}
