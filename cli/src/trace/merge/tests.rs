use super::*;

const MS: u64 = 1_000_000;

/// Members 1 to 3, on hosts whose clocks show the same, or are ahead by so many nanoseconds.
struct Scene {
    logs: Logs,
    ahead: [u64; 3],
}

impl Scene {
    fn new(ahead: [u64; 3]) -> Self {
        let mut logs = Logs::default();
        // Their dates are right, so that it is known what must come out.
        for (name, ahead) in ["a", "b", "c"].into_iter().zip(ahead) {
            logs.clocks.push((name.to_owned(), ahead, 0));
        }
        Self { logs, ahead }
    }

    fn incarnation(&mut self, member: u16, incarnation: u64, at: u64, what: What) -> &mut Self {
        let clock = usize::from(member) - 1;
        let events = self.logs.members.entry(member).or_default();
        let before = events
            .events
            .iter()
            .filter(|event| event.incarnation == incarnation);
        let n = before.count() as u64 + 1;
        events.events.push(Event {
            incarnation,
            n,
            clock,
            at: at + self.ahead[clock],
            lock: None,
            what,
        });
        self
    }

    fn at(&mut self, at: u64, member: u16, what: What) -> &mut Self {
        self.incarnation(member, 1, at, what)
    }

    fn merge(&self) -> Merged {
        merge(&self.logs, &Alignment::of(&self.logs))
    }
}

fn message(from: u16, to: u16, number: u64) -> Message {
    Message {
        from: (from, 1),
        to: (to, 1),
        number,
    }
}

fn sent(message: Message) -> What {
    let kind = "REQUEST";
    What::Sent { message, kind }
}

fn received(message: Message) -> What {
    let kind = "REQUEST";
    What::Received { message, kind }
}

fn view(epoch: u32, members: &[u16]) -> What {
    let members = members.to_vec();
    What::View { epoch, members }
}

/// Which transmission arrives at each receipt, and which it follows from.
fn arrivals(merged: &Merged) -> Vec<(Option<u64>, Option<u64>)> {
    let moments = merged.history.iter();
    let arrivals = moments.filter_map(|moment| match moment.what {
        timeline::What::Received { message, cause, .. } => Some((message, cause)),
        _ => None,
    });
    arrivals.collect()
}

/// Nothing comes before its cause, members' events stay in order, and times never go back.
fn assert_in_order(merged: &Merged) {
    let mut sent = BTreeMap::new();
    let mut last = 0;
    for moment in &merged.history {
        assert!(moment.at >= last, "{moment:?}");
        last = moment.at;
        match moment.what {
            timeline::What::Sent { message, .. } => {
                sent.insert(message, moment.at);
            }
            timeline::What::Received { message, cause, .. } => {
                for number in [message, cause].into_iter().flatten() {
                    assert!(sent[&number] < moment.at, "{moment:?}");
                }
            }
            _ => {}
        }
    }
}

#[test]
fn messages_find_their_receivers() {
    let mut scene = Scene::new([0; 3]);
    // The numbers are those of each link: the same on several.
    scene
        .at(1, 1, sent(message(1, 2, 1)))
        .at(2, 1, sent(message(1, 3, 1)))
        .at(5, 2, received(message(1, 2, 1)))
        .at(6, 2, sent(message(2, 1, 1)))
        .at(7, 3, received(message(1, 3, 1)))
        .at(9, 1, received(message(2, 1, 1)));
    let merged = scene.merge();
    assert_in_order(&merged);
    let both = |number| (Some(number), Some(number));
    assert_eq!(arrivals(&merged), [both(1), both(2), both(3)]);
    assert_eq!(merged.transits, [3, 4, 5]);
    assert_eq!((merged.moved, merged.to_nowhere, merged.cycles), (0, 0, 0));
}

/// The last transmission before it has arrived; what the receiver does follows from the first.
#[test]
fn what_is_sent_again_is_one_message() {
    let mut scene = Scene::new([0; 3]);
    scene
        .at(1, 1, sent(message(1, 2, 1)))
        .at(20, 1, sent(message(1, 2, 1)))
        .at(25, 2, received(message(1, 2, 1)))
        .at(30, 1, sent(message(1, 2, 1)))
        .at(35, 2, received(message(1, 2, 1)))
        .at(36, 2, received(message(1, 2, 1)))
        .at(37, 2, received(message(1, 2, 1)));
    let merged = scene.merge();
    assert_in_order(&merged);
    assert_eq!(
        arrivals(&merged),
        [
            (Some(2), Some(1)),
            (Some(3), Some(1)),
            (Some(1), Some(1)),
            // The network can make two of one.
            (None, Some(1)),
        ]
    );
    let again = merged
        .history
        .iter()
        .filter(|moment| matches!(moment.what, timeline::What::Sent { again: true, .. }));
    assert_eq!(again.count(), 2);
}

/// Whatever the clocks say: here all of member 2's times are a millisecond too early, and nothing
/// goes the other way from which that could be known.
#[test]
fn no_arrow_leads_back() {
    let mut scene = Scene::new([5 * MS; 3]);
    scene.ahead[1] = 4 * MS;
    for i in 1..=20 {
        let at = i * 100_000;
        scene.at(at, 1, sent(message(1, 2, i)));
        scene.at(at + 1_000, 2, received(message(1, 2, i)));
        scene.at(at + 2_000, 2, What::Began);
    }
    let merged = scene.merge();
    assert_eq!(merged.history.len(), 60);
    assert_in_order(&merged);
    assert!(merged.moved > 0);
    assert_eq!(merged.farthest, MS - 1_000 + 1);
}

/// Where messages go both ways they tell what the clocks do not.
#[test]
fn clocks_that_are_wrong_are_corrected() {
    let mut scene = Scene::new([0; 3]);
    scene.ahead = [0, 7_000 * MS, 0];
    for i in 1..=20 {
        let at = i * 10 * MS;
        scene
            .at(at, 1, sent(message(1, 2, i)))
            .at(at + MS, 2, received(message(1, 2, i)))
            .at(at + 2 * MS, 2, sent(message(2, 1, i)))
            .at(at + 3 * MS, 1, received(message(2, 1, i)));
    }
    let merged = scene.merge();
    assert_in_order(&merged);
    assert_eq!(merged.moved, 0);
    assert!(merged.transits.iter().all(|transit| *transit == MS));
}

#[test]
fn a_member_without_a_trace_is_known_from_others() {
    let mut scene = Scene::new([0; 3]);
    scene
        .at(1, 1, sent(message(1, 2, 1)))
        .at(3, 1, received(message(2, 1, 1)));
    let merged = scene.merge();
    let lanes: Vec<_> = merged
        .lanes
        .iter()
        .map(|lane| (lane.number, lane.known_until))
        .collect();
    assert_eq!(lanes, [(1, Some(3)), (2, None)]);
    assert_eq!(merged.to_nowhere, 2);
    assert_eq!(arrivals(&merged), [(None, None)]);
}

#[test]
fn who_falls_silent_and_is_left_out_has_crashed() {
    let mut scene = Scene::new([0; 3]);
    for member in 1..=3 {
        scene.at(1, member, view(1, &[1, 2, 3]));
    }
    scene.at(
        5,
        3,
        What::Entered {
            request: 1,
            fence: Some(7),
            pid: Some(4711),
        },
    );
    let quiet = scene.merge();
    let crashes = |merged: &Merged| {
        let moments = merged.history.iter();
        let crashes = moments.filter(|moment| moment.what == timeline::What::Crashed);
        crashes
            .map(|moment| (moment.lane, moment.at))
            .collect::<Vec<_>>()
    };
    assert_eq!(crashes(&quiet), [], "it may just have been copied then");
    let heard = Some(40);
    scene.at(90, 1, What::Suspects { member: 3, heard });
    scene.at(100, 1, view(2, &[1, 2]));
    scene.at(101, 2, view(2, &[1, 2]));
    let merged = scene.merge();
    assert_eq!(crashes(&merged), [(2, 40)], "it was heard until then");
    assert_eq!(merged.lanes[2].known_until, Some(u64::MAX));
    assert_in_order(&merged);

    // Another incarnation came: so the one before is over.
    scene.incarnation(3, 2, 500, What::Began);
    assert_eq!(crashes(&scene.merge()), [(2, 40)]);
}

#[test]
fn who_ends_in_order_or_was_excluded_has_not_crashed() {
    for last in [What::Closed { why: None }, What::Excluded] {
        let mut scene = Scene::new([0; 3]);
        for member in 1..=3 {
            scene.at(1, member, view(1, &[1, 2, 3]));
        }
        scene.at(5, 3, last);
        scene.at(100, 1, view(2, &[1, 2]));
        scene.incarnation(3, 2, 500, What::Began);
        let merged = scene.merge();
        let crashed = merged.history.iter();
        let crashed = crashed.filter(|moment| moment.what == timeline::What::Crashed);
        assert_eq!(crashed.count(), 0);
    }
}

/// Files that are not of one group, or were changed, must not make it go on for ever.
#[test]
fn ends_when_two_wait_for_each_other() {
    let mut scene = Scene::new([0; 3]);
    scene
        .at(1, 1, received(message(2, 1, 1)))
        .at(2, 1, sent(message(1, 2, 1)))
        .at(1, 2, received(message(1, 2, 1)))
        .at(2, 2, sent(message(2, 1, 1)));
    let merged = scene.merge();
    assert_eq!(merged.history.len(), 4);
    assert_eq!(merged.cycles, 1);
}

#[test]
fn many_events_take_little_time() {
    let mut scene = Scene::new([0, 3_000 * MS, 0]);
    scene.ahead[1] = 1_000 * MS;
    for i in 1..=100_000 {
        let at = i * 1_000;
        scene.logs.members.entry(1).or_default().events.push(Event {
            incarnation: 1,
            n: i,
            clock: 0,
            at,
            lock: None,
            what: sent(message(1, 2, i)),
        });
        scene.logs.members.entry(2).or_default().events.push(Event {
            incarnation: 1,
            n: i,
            clock: 1,
            at: at + 500 + 1_000 * MS,
            lock: None,
            what: received(message(1, 2, i)),
        });
    }
    let merged = scene.merge();
    assert_eq!(merged.history.len(), 200_000);
    assert_in_order(&merged);
}
