//! Examples from the lectures, step by step.
use std::time::Duration;

use distlock_lab::bare::{Bare, Turn};
use distlock_lab::choices::Choices;
use distlock_lab::network::{Conditions, Network};
use distlock_lab::trace::Trace;
use distlock_protocol::{Algorithm, LockSpec, Mode, NodeId, Release, RequestId};

/// One one-way delay.
const T: Duration = Duration::from_secs(1);

/// Figure 6.16 (Tanenbaum and van Steen): processes 0 and 2 want to enter at the same time, with
/// timestamps 8 and 12; process 1 does not. Process 0 wins, as 8 < 12, and 2 enters after its exit.
#[test]
fn ricart_agrawala_figure_6_16() {
    let [zero, one, two] = [1, 2, 3].map(|id| NodeId::new(id).unwrap());
    let network = Network::new(Conditions::perfect(T), Choices::new(0));
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let mut bare: Bare<()> = Bare::new(spec, 3, network, Trace::new(None)).unwrap();
    assert_eq!(bare.members(), [zero, one, two]);
    // A request's own tick makes it 8 and 12.
    bare.set_clock(zero, 7);
    bare.set_clock(two, 11);
    let eight = bare.ask(zero, Mode::Exclusive, false).unwrap();
    let twelve = bare.ask(two, Mode::Exclusive, false).unwrap();

    assert_eq!(next_grant(&mut bare), Some(eight));
    assert_eq!(bare.now().as_nanos(), 2_000_000_000, "REQUEST and REPLY");
    assert_eq!(
        next_grant(&mut bare),
        None,
        "process 2 waits while process 0 is inside"
    );
    // 0 asked 1 and 2, and was answered by both; 2 asked 0 and 1, was answered by 1, deferred by 0.
    let counts = |bare: &Bare<()>| {
        let counts = bare.counts();
        ["REQUEST", "REPLY", "DEFERRED"].map(|kind| counts.get(kind).copied().unwrap_or(0))
    };
    assert_eq!(counts(&bare), [4, 3, 1]);

    let exit = bare.now();
    bare.release(eight, Release::Given).unwrap();
    assert_eq!(next_grant(&mut bare), Some(twelve));
    assert_eq!(bare.now(), exit + T, "one REPLY after the exit");
    assert_eq!(counts(&bare), [4, 4, 1]);
}

/// The next grant within ten delays.
fn next_grant(bare: &mut Bare<()>) -> Option<RequestId> {
    let end = bare.now() + T * 10;
    match bare.next(end).unwrap() {
        Some(Turn::Granted(id)) => Some(id),
        _ => None,
    }
}
