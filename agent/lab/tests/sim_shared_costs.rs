//! Messages per entry of those that share a lock, and of those that have one of its permits: of the manager,
//! which lends, and of the semaphore, which does not.
use std::num::NonZeroU32;
use std::time::Duration;

use distlock_lab::bare::{Bare, Turn};
use distlock_lab::choices::Choices;
use distlock_lab::network::{Conditions, Network};
use distlock_lab::trace::Trace;
use distlock_protocol::lock::LockSpec;
use distlock_protocol::{Algorithm, Mode, NodeId, Priority, Release, RequestId, Time};

const MEMBERS: u16 = 5;
/// How long a message is under way.
const DELAY: Duration = Duration::from_micros(50);
/// How long somebody stays inside.
const INSIDE: Duration = Duration::from_micros(20);
/// Between two entries of one member.
const PAUSE: Duration = Duration::from_millis(1);
const ENTRIES: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
enum Act {
    Want(NodeId),
    Exit(RequestId),
}

/// Every member enters again and again. `alone`: each entry whose number this divides is a writer's.
fn messages_per_entry(algorithm: Algorithm, permits: u32, alone: Option<u64>) -> f64 {
    let spec = LockSpec {
        algorithm,
        permits: NonZeroU32::new(permits).unwrap(),
        priority: Priority::Lamport,
    };
    let network = Network::new(Conditions::perfect(DELAY), Choices::new(0));
    let mut bare: Bare<Act> = Bare::new(spec, MEMBERS, network, Trace::new(None)).unwrap();
    for (place, node) in bare.members().to_vec().into_iter().enumerate() {
        bare.plan(PAUSE * place as u32 / u32::from(MEMBERS), Act::Want(node));
    }
    let (mut asked, mut entered) = (0, 0);
    while entered < ENTRIES {
        match bare.next(Time::MAX).unwrap().expect("somebody asks") {
            Turn::Act(Act::Want(node)) => {
                asked += 1;
                let is_alone = permits > 1 || alone.is_some_and(|every| asked % every == 0);
                let mode = if is_alone {
                    Mode::Exclusive
                } else {
                    Mode::Shared
                };
                bare.ask(node, mode, false).unwrap();
            }
            Turn::Granted(id) => {
                entered += 1;
                bare.plan(INSIDE, Act::Exit(id));
            }
            Turn::Act(Act::Exit(id)) => {
                bare.release(id, Release::Given).unwrap();
                bare.plan(PAUSE, Act::Want(id.node));
            }
            Turn::Busy(_) => {}
        }
    }
    bare.counts().values().sum::<u64>() as f64 / ENTRIES as f64
}

#[track_caller]
fn assert_costs(permits: u32, alone: Option<u64>, expected: (f64, f64)) {
    let [semaphore, manager] = [Algorithm::Semaphore, Algorithm::Manager]
        .map(|algorithm| messages_per_entry(algorithm, permits, alone));
    println!("{permits} permit(s), alone {alone:?}: {semaphore:.3}, {manager:.3}");
    let is_near = |measured: f64, expected: f64| (measured - expected).abs() <= 0.03 * expected;
    assert!(is_near(semaphore, expected.0), "{semaphore}");
    assert!(is_near(manager, expected.1), "{manager}");
}

/// Three messages for each entry of a member that is not the server; and a few until shares are lent.
#[test]
fn readers_pay_for_their_first_entries_alone() {
    assert_costs(1, None, (2.354, 0.007));
}

#[test]
fn a_writer_now_and_then_recalls_what_is_lent() {
    assert_costs(1, Some(1_000), (2.354, 0.0211));
    assert_costs(1, Some(100), (2.354, 0.290));
    assert_costs(1, Some(10), (2.354, 1.601));
}

#[test]
fn permits_that_are_enough_for_all_are_paid_for_once() {
    assert_costs(5, None, (2.354, 0.007));
}

#[test]
fn permits_that_are_not_enough_go_round() {
    assert_costs(2, None, (2.354, 2.562));
}
