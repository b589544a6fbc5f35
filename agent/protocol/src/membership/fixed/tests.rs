//! The rounds of the fixed group, step by step.

use alloc::collections::VecDeque;
use alloc::vec;

use super::*;
use crate::ids::{LockName, RequestId};
use crate::lock::{Algorithm, Last, LockSpec, LockSummary, Mode};

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn epoch(epoch: u32) -> Epoch {
    Epoch::new(epoch).unwrap()
}

/// A group of sources of views, with a wire that delivers in order.
struct Group {
    sources: BTreeMap<NodeId, Fixed>,
    wire: Vec<(NodeId, NodeId, ViewMessage)>,
    installed: Vec<(NodeId, Epoch, Summary)>,
    /// What each member has on disk.
    disk: BTreeMap<NodeId, Epoch>,
    /// What each member tells of itself.
    holds: BTreeMap<NodeId, Summary>,
}

impl Group {
    fn new(size: u16) -> Self {
        let mut group = Self {
            sources: BTreeMap::new(),
            wire: Vec::new(),
            installed: Vec::new(),
            disk: (1..=size).map(|id| (node(id), epoch(10))).collect(),
            holds: BTreeMap::new(),
        };
        for id in 1..=size {
            group.start(id, 1, false);
        }
        group
    }

    /// The same, in a view.
    fn formed(size: u16) -> Self {
        let mut group = Self::new(size);
        group.deliver_all();
        group
    }

    /// The view that each member is in.
    fn views(&self) -> Vec<&View> {
        let sources = self.sources.values();
        sources.map(|source| &**source.view().unwrap()).collect()
    }

    /// A message arrives.
    fn receive(&mut self, from: u16, to: u16, message: ViewMessage) {
        self.step(node(to), |source, out| {
            source.receive(Time::ZERO, node(from), message, out);
        });
    }

    /// Begins an incarnation, which is up with all others at once, and ready.
    fn start(&mut self, id: u16, incarnation: u64, unclean: bool) {
        let me = Member {
            node: node(id),
            incarnation: Incarnation(incarnation),
        };
        let members = self.disk.keys().copied().collect();
        let source = Fixed::new(me, members, self.disk[&me.node], unclean);
        self.sources.insert(me.node, source);
        self.wire
            .retain(|(from, to, _)| *from != me.node && *to != me.node);
        let incarnations: Vec<_> = self
            .sources
            .iter()
            .map(|(&node, source)| (node, source.incarnations[&node]))
            .collect();
        for (peer, incarnation) in incarnations
            .into_iter()
            .filter(|(peer, _)| *peer != me.node)
        {
            self.step(peer, |source, out| {
                source.peer_down(Time::ZERO, me.node, out);
                source.peer_up(Time::ZERO, me.node, me.incarnation, out);
            });
            self.step(me.node, |source, out| {
                source.peer_up(Time::ZERO, peer, incarnation, out)
            });
        }
        self.step(me.node, |source, out| source.ready(Time::ZERO, out));
    }

    fn step(&mut self, at: NodeId, step: impl FnOnce(&mut Fixed, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        let source = self.sources.get_mut(&at).unwrap();
        step(source, &mut actions);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let source = self.sources.get_mut(&at).unwrap();
            let mut more = Vec::new();
            match action {
                Action::Send(to, message) => self.wire.push((at, to, message)),
                Action::Freeze => {}
                Action::Persist(epoch) => {
                    assert!(epoch > self.disk[&at], "an epoch is taken part in once");
                    self.disk.insert(at, epoch);
                    source.persisted(Time::ZERO, &mut more);
                }
                Action::Summarise(_) => {
                    let summary = self.holds.get(&at).cloned().unwrap_or_default();
                    source.summarised(Time::ZERO, summary, &mut more);
                }
                Action::Install(view, table) => self.installed.push((at, view.epoch, table)),
                other => panic!("unanimity does not want {other:?}"),
            }
            actions.extend(more);
        }
    }

    fn deliver_one(&mut self) -> bool {
        if self.wire.is_empty() {
            return false;
        }
        let (from, to, message) = self.wire.remove(0);
        self.receive(from.as_u16(), to.as_u16(), message);
        true
    }

    fn deliver_all(&mut self) {
        while self.deliver_one() {}
    }

    fn epochs(&self) -> Vec<u32> {
        self.installed
            .iter()
            .map(|(_, epoch, _)| epoch.as_u32())
            .collect()
    }
}

#[test]
fn a_group_of_one_forms_by_itself() {
    let group = Group::new(1);
    assert_eq!(group.epochs(), [11]);
}

#[test]
fn a_group_forms_when_all_are_there() {
    let group = Group::formed(3);
    assert_eq!(group.epochs(), [11, 11, 11]);
    assert!(group.sources.values().all(|source| source.view().is_some()));
}

#[test]
fn a_new_incarnation_makes_the_group_form_anew() {
    for id in 1..=3 {
        let mut group = Group::formed(3);
        group.start(id, 2, true);
        group.deliver_all();
        assert_eq!(group.epochs(), [11, 11, 11, 12, 12, 12], "member {id}");
        assert!(group.views().iter().all(|view| view.unclean == [node(id)]));
        group.start(id, 3, false);
        group.deliver_all();
        assert!(group.views().iter().all(|view| view.unclean.is_empty()));
    }
}

/// Wherever a round is cut off by a new incarnation, of anybody, the next one ends well, and no
/// epoch is installed twice with different tables.
#[test]
fn a_round_may_be_cut_off_anywhere() {
    for victim in 1..=3 {
        for steps in 0..12 {
            let mut group = Group::formed(3);
            group.start(2, 2, true);
            for _ in 0..steps {
                group.deliver_one();
            }
            group.start(victim, 3, true);
            group.deliver_all();
            let epochs: BTreeSet<_> = group.views().iter().map(|view| view.epoch).collect();
            assert_eq!(epochs.len(), 1, "victim {victim} after {steps} steps");
        }
    }
}

#[test]
fn a_member_that_knows_a_higher_epoch_is_heeded() {
    let mut group = Group::formed(3);
    // The disk of member 3 is ahead: it took part in a round that nobody else remembers.
    group.disk.insert(node(3), epoch(40));
    group.start(3, 2, false);
    group.deliver_all();
    assert_eq!(group.epochs()[3..], [41, 41, 41]);
}

#[test]
fn an_epoch_that_is_not_new_is_rejected_and_the_coordinator_goes_above_it() {
    let mut group = Group::formed(2);
    let view = group.views()[0].clone();
    let epoch = view.epoch;
    group.receive(1, 2, ViewMessage::Freeze { view });
    let reject = ViewMessage::Reject { epoch };
    assert_eq!(group.wire, [(node(2), node(1), reject)]);
}

#[test]
fn a_view_of_another_incarnation_or_of_other_members_is_nothing() {
    let mut group = Group::formed(2);
    let mut view = group.views()[1].clone();
    view.epoch = epoch(20);
    let (mut other_incarnation, mut fewer) = (view.clone(), view);
    other_incarnation.members[1].incarnation = Incarnation(9);
    fewer.members.remove(0);
    for view in [other_incarnation, fewer] {
        group.receive(1, 2, ViewMessage::Freeze { view });
    }
    assert!(group.wire.is_empty());
    assert_eq!(group.disk[&node(2)], epoch(11));
}

#[test]
fn who_is_not_the_coordinator_is_not_obeyed() {
    let mut group = Group::formed(3);
    let mut view = group.views()[1].clone();
    view.epoch = epoch(30);
    group.receive(3, 2, ViewMessage::Freeze { view: view.clone() });
    let table = Summary::default();
    group.receive(3, 2, ViewMessage::Install { view, table });
    assert_eq!(group.disk[&node(2)], epoch(11));
    assert_eq!(group.epochs(), [11, 11, 11]);
}

#[test]
fn nobody_that_is_not_ready_is_in_a_view() {
    let me = |id| Member {
        node: node(id),
        incarnation: Incarnation(1),
    };
    let members: BTreeSet<_> = [node(1), node(2)].into();
    let mut second = Fixed::new(me(2), members, epoch(1), true);
    let mut out = Vec::new();
    second.peer_up(Time::ZERO, node(1), Incarnation(1), &mut out);
    let view = View {
        epoch: epoch(5),
        members: vec![me(1), me(2)],
        unclean: Vec::new(),
    };
    second.receive(Time::ZERO, node(1), ViewMessage::Freeze { view }, &mut out);
    assert!(out.is_empty());
}

#[test]
fn the_union_of_what_members_tell_is_installed() {
    let request = |id| RequestId {
        node: node(id),
        incarnation: Incarnation(1),
        seq: 4,
    };
    let summary = |id: u16| {
        let lock = LockSummary {
            spec: LockSpec::exclusive(Algorithm::Bakery),
            holders: vec![request(id)],
            held: Mode::Exclusive,
            waiters: Vec::new(),
            last: Last::default(),
            abandoned: false,
            suspects: Vec::new(),
        };
        let locks = BTreeMap::from([(LockName::new("x").unwrap(), lock)]);
        Summary {
            clock: u64::from(id) * 100,
            locks,
            ..Summary::default()
        }
    };
    let mut group = Group::new(3);
    group.holds = [(node(3), summary(3)), (node(2), summary(2))].into();
    group.deliver_all();
    for (_, _, table) in &group.installed {
        assert_eq!(table.clock, 300);
        let lock = &table.locks[&LockName::new("x").unwrap()];
        assert_eq!(lock.holders, [request(2), request(3)]);
    }
}

#[test]
fn a_wish_for_a_view_is_granted_once() {
    let mut group = Group::formed(3);
    for _ in 0..3 {
        group.step(node(2), |source, out| source.want_view(Time::ZERO, out));
    }
    group.deliver_all();
    assert_eq!(group.epochs()[3..], [12, 12, 12]);
}
