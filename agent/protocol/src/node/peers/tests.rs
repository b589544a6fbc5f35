//! What is said to peers, and what is not said again.

use alloc::vec;

use super::*;
use crate::settings::Settings;

#[test]
fn what_is_long_is_not_said_again_while_it_is_on_its_way() {
    let [me, other] = [1, 2].map(|id| NodeId::new(id).unwrap());
    let member = |node| Member {
        node,
        incarnation: Incarnation(1),
    };
    let config = NodeConfig {
        me,
        members: BTreeSet::from([me, other]),
        voters: BTreeSet::from([me]),
        cluster: None,
        settings: Settings::new("test"),
    };
    let now = Time::from_nanos(1);
    let mut peers = Peers::new(now, member(me), &config);
    peers.meet(now, &[member(me), member(other)], &mut Vec::new());
    let mut sent = |byte, len| {
        let bytes = vec![byte; len];
        peers.say(other, &Body::Note { bytes });
        let mut out = VecDeque::new();
        peers.flush(now, &mut Timers::default(), &mut out);
        out.len()
    };
    assert!(sent(0, 5000) >= 4);
    assert_eq!(sent(0, 5000), 0, "it is on its way");
    assert!(sent(1, 5000) >= 4, "something else");
    // Nothing is acknowledged, so that there is room for no more at some time.
    for byte in 2..100 {
        sent(byte, 100_000);
    }
    let unsent = peers.counters.notices_unsent;
    assert!((1..98).contains(&unsent), "{unsent}");
}
