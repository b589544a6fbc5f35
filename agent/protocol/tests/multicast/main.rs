//! Totally ordered multicast: the lecture's example, what it costs, and each rule by itself. Runs
//! with faults and new views are in `sim_multicast.rs`.

use std::collections::{BTreeMap, VecDeque};

use distlock_protocol::multicast::{
    Install, InstallError, Message, MulticastError, ReceiveError, TooLate, TotalOrder, Undelivered,
    ViewError,
};
use distlock_protocol::{Epoch, NodeId};

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("ids start at 1")
}

fn epoch(number: u32) -> Epoch {
    Epoch::new(number).expect("a low number")
}

type Payload = &'static str;

/// Members, and what is under way between each two of them, in order.
struct Group {
    members: BTreeMap<NodeId, TotalOrder<Payload>>,
    under_way: BTreeMap<(NodeId, NodeId), VecDeque<Message<Payload>>>,
    sent: BTreeMap<&'static str, usize>,
    delivered: BTreeMap<NodeId, Vec<Payload>>,
}

impl Group {
    /// Members 1 to `size` in their first view.
    fn new(size: u16) -> Self {
        let mut group = Self {
            members: (1..=size)
                .map(|node| (id(node), TotalOrder::new(id(node), 2)))
                .collect(),
            under_way: BTreeMap::new(),
            sent: BTreeMap::new(),
            delivered: (1..=size).map(|node| (id(node), Vec::new())).collect(),
        };
        group.change(1);
        group
    }

    fn member(&mut self, node: u16) -> &mut TotalOrder<Payload> {
        self.members.get_mut(&id(node)).unwrap()
    }

    fn freeze(&mut self, number: u32) -> Vec<Undelivered<Payload>> {
        let members = self.members.values_mut();
        members
            .map(|member| member.freeze(epoch(number)).unwrap())
            .collect()
    }

    /// All members go to the next view.
    fn change(&mut self, number: u32) -> Install<Payload> {
        let said = self.freeze(number);
        let members = self.members.keys().copied().collect();
        let install = Install::new(epoch(number), members, said).unwrap();
        for member in self.members.values_mut() {
            member.install(&install).unwrap();
        }
        self.deliver();
        install
    }

    fn say(&mut self, node: u16, payload: Payload) {
        let message = self.member(node).multicast(payload);
        self.send(id(node), &message.unwrap());
    }

    fn send(&mut self, from: NodeId, message: &Message<Payload>) {
        let peers: Vec<NodeId> = self.members[&from].peers().collect();
        for to in peers {
            *self.sent.entry(message.kind()).or_default() += 1;
            let queue = self.under_way.entry((from, to)).or_default();
            queue.push_back(message.clone());
        }
    }

    /// The next message from one to another arrives, and is acknowledged.
    fn arrive(&mut self, from: u16, to: u16) {
        self.arrive_silently(from, to);
        let acknowledgement = self.member(to).acknowledge();
        if let Some(message) = acknowledgement {
            self.send(id(to), &message);
        }
    }

    fn arrive_silently(&mut self, from: u16, to: u16) {
        let queue = self.under_way.get_mut(&(id(from), id(to))).unwrap();
        let message = queue.pop_front().expect("something is under way");
        let member = self.member(to);
        member.receive(id(from), message).unwrap();
        self.deliver();
    }

    /// All arrives that was under way at the beginning: one delay goes by.
    fn pass_one_delay(&mut self) {
        let round: Vec<_> = self
            .under_way
            .iter()
            .map(|(way, queue)| (*way, queue.len()))
            .collect();
        for ((from, to), count) in round {
            for _ in 0..count {
                self.arrive(from.as_u16(), to.as_u16());
            }
        }
    }

    fn settle(&mut self) {
        while self.under_way.values().any(|queue| !queue.is_empty()) {
            self.pass_one_delay();
        }
    }

    fn deliver(&mut self) {
        for (node, member) in &mut self.members {
            let delivered = self.delivered.entry(*node).or_default();
            delivered.extend(core::iter::from_fn(|| {
                member.deliver().map(|it| it.payload)
            }));
        }
    }

    /// `node` ends; what it sent to those in `reached` still arrives.
    fn crash(&mut self, node: u16) -> Vec<Payload> {
        self.members.remove(&id(node));
        self.under_way
            .retain(|(from, to), _| *from != id(node) && *to != id(node));
        self.delivered.remove(&id(node)).unwrap()
    }
}

/// S1, 6.2, Figure 6.10: two cities add 100 and one percent at the same time. San Francisco's
/// stamp is the lower: first the 100 at both, 1,111. With the cities reversed 1,110, at both too.
#[test]
fn lecture_figure_6_10_both_copies_have_1111() {
    for (first, second, balance) in [("+100", "+1%", 1_111), ("+1%", "+100", 1_110)] {
        let mut group = Group::new(2);
        group.say(1, first);
        group.say(2, second);
        group.settle();
        for delivered in group.delivered.values() {
            let update = |sum, payload: &Payload| match *payload {
                "+100" => sum + 100,
                _ => sum + sum / 100,
            };
            assert_eq!(delivered.iter().fold(1_000, update), balance);
        }
    }
}

/// N-1 times the message, and N-1 acknowledgements by each of N-1: N(N-1). It is delivered by the
/// sender after 2T, when all acknowledgements are there, and by the others too.
#[test]
fn lecture_6_2_a_message_takes_n_times_n_minus_1_and_2t() {
    for size in 1..=9 {
        let mut group = Group::new(size);
        group.say(1, "x");
        group.deliver();
        let mut delays = 0;
        while group.delivered.values().any(Vec::is_empty) {
            group.pass_one_delay();
            delays += 1;
        }
        group.settle();
        let n = usize::from(size);
        assert_eq!(group.sent.values().sum::<usize>(), n * (n - 1));
        assert_eq!(delays, if size == 1 { 0 } else { 2 });
    }
}

/// What is said next says what has come, so that no acknowledgement is needed beside it.
#[test]
fn later_traffic_stands_for_acknowledgements() {
    let mut group = Group::new(3);
    group.say(1, "a");
    group.arrive_silently(1, 2);
    group.say(2, "b");
    group.settle();
    assert_eq!(group.sent["DATA"], 4);
    // By 3 of "a" and of "b", and by 1 of "b"; 2 has none to give.
    assert_eq!(group.sent["ACK"], 6);
    assert!(group.delivered.values().all(|it| *it == ["a", "b"]));
}

/// The rule of the design, 5.3, taken at its word: "deliver the head when known\[p\] > s". 2 says
/// something with a higher clock before it has "lost" of 1, so 3 would deliver that; then 1 and 3
/// crash, nobody else has it, and 2 would go on without what 3 has delivered.
#[test]
fn a_higher_clock_is_no_acknowledgement() {
    let mut group = Group::new(3);
    group.say(1, "x");
    group.arrive(1, 2);
    group.say(1, "lost");
    group.say(2, "b");
    group.arrive(1, 3);
    group.arrive(1, 3);
    while !group.under_way[&(id(2), id(3))].is_empty() {
        group.arrive(2, 3);
    }
    let delivered = group.crash(3);
    assert_eq!(delivered, ["x"]);
    group.crash(1);
    group.change(2);
    assert_eq!(group.delivered[&id(2)], ["x", "b"]);
}

/// S1: "no messages are lost", "received in the order they were sent": where a link does not keep
/// that, the engine says so, and takes nothing amiss that comes twice.
#[test]
fn gaps_are_told_and_copies_ignored() {
    let mut sender = Group::new(2).members.remove(&id(1)).unwrap();
    let mut group = Group::new(2);
    let receiver = group.member(2);
    let [first, second] = ["a", "b"].map(|payload| sender.multicast(payload).unwrap());
    let gap = ReceiveError::Gap {
        expected: 1,
        found: 2,
    };
    assert_eq!(receiver.receive(id(1), second.clone()), Err(gap));
    for message in [&first, &second, &first, &second] {
        assert_eq!(receiver.receive(id(1), message.clone()), Ok(()));
    }
    let stranger = receiver.receive(id(9), first);
    assert_eq!(stranger, Err(ReceiveError::NotAMember));
    assert_eq!(receiver.backlog(), 2);
    let delivered: Vec<_> = core::iter::from_fn(|| receiver.deliver()).collect();
    // 1's messages need nobody's word but 2's own.
    assert_eq!(delivered.len(), 2);
}

#[test]
fn a_window_bounds_what_waits() {
    let mut group = Group::new(2);
    group.say(1, "a");
    group.say(1, "b");
    let member = group.member(1);
    assert_eq!(member.multicast("c"), Err(MulticastError::Full("c")));
    group.settle();
    group.say(1, "c");
    group.settle();
    assert_eq!(group.delivered[&id(2)], ["a", "b", "c"]);
}

/// The sender of "a" crashes when one of two has it; both deliver it, before what comes later.
#[test]
fn survivors_deliver_the_union() {
    let mut group = Group::new(3);
    group.say(1, "a");
    group.arrive(1, 2);
    group.say(3, "b");
    assert_eq!(group.crash(1), [""; 0]);
    group.change(2);
    for node in [2, 3] {
        let delivered = &group.delivered[&id(node)];
        assert_eq!(delivered.len(), 2);
        assert_eq!(*delivered, group.delivered[&id(2)]);
    }
    // What is under way of the old view is ignored.
    group.settle();
    group.say(2, "c");
    group.settle();
    assert_eq!(group.delivered[&id(3)][2..], ["c"]);
}

/// One member is in the new view before the other, and says something there.
#[test]
fn what_comes_before_its_view_waits_for_it() {
    let mut group = Group::new(2);
    let said = group.freeze(2);
    let install = Install::new(epoch(2), vec![id(1), id(2)], said).unwrap();
    group.member(1).install(&install).unwrap();
    group.say(1, "early");
    group.arrive(1, 2);
    let late = group.member(2);
    assert_eq!(late.multicast("x"), Err(MulticastError::Frozen("x")));
    assert_eq!(late.deliver(), None);
    late.install(&install).unwrap();
    assert_eq!(late.deliver().map(|it| it.payload), Some("early"));
}

/// Views are installed one after the other, by those who have said what they lack.
#[test]
fn views_follow_each_other() {
    let mut group = Group::new(2);
    group.say(1, "a");
    let one = group.member(1);
    let early = Install::new(
        epoch(2),
        vec![id(1)],
        [one.clone().freeze(epoch(2)).unwrap()],
    )
    .unwrap();
    assert_eq!(one.install(&early), Err(InstallError::NotFrozen));
    let late = one.clone().freeze(epoch(1));
    let (now, next) = (epoch(1), epoch(1));
    assert_eq!(late, Err(TooLate { next, epoch: now }));
    let said = one.freeze(epoch(2)).unwrap();
    // Asked again, it says the same.
    assert_eq!(one.freeze(epoch(2)).as_ref(), Ok(&said));
    let other = Install::new(epoch(2), vec![id(2)], [said.clone()]);
    assert_eq!(other, Err(ViewError::NotHeard { node: id(2) }));
    let old = Install::new(epoch(1), vec![id(1)], [said.clone()]);
    let (now, previous) = (epoch(1), epoch(1));
    assert_eq!(
        old,
        Err(ViewError::OldEpoch {
            epoch: now,
            previous
        })
    );
    one.install(&Install::new(epoch(2), vec![id(1)], [said.clone()]).unwrap())
        .unwrap();
    let third = Install::new(epoch(3), vec![id(1)], [one.freeze(epoch(3)).unwrap()]).unwrap();
    let two = group.member(2);
    let gone = two.freeze(epoch(2)).unwrap();
    assert_eq!(two.install(&third), Err(InstallError::NotAMember));
    let one = group.member(1);
    let both = Install::new(
        epoch(4),
        vec![id(1), id(2)],
        [one.freeze(epoch(4)).unwrap(), gone],
    );
    assert_eq!(both, Err(ViewError::TwoViews));
}

/// A newcomer begins after what the others have settled.
#[test]
fn a_newcomer_begins_with_its_view() {
    let mut group = Group::new(2);
    group.say(1, "a");
    group.members.insert(id(3), TotalOrder::new(id(3), 2));
    let install = group.change(2);
    assert_eq!(
        install.undelivered().map(|(_, it)| *it).collect::<Vec<_>>(),
        ["a"]
    );
    group.say(2, "b");
    group.settle();
    assert_eq!(group.delivered[&id(1)], ["a", "b"]);
    assert_eq!(group.delivered[&id(3)], ["b"]);
}
