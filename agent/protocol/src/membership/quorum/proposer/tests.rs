use alloc::vec;

use super::*;
use crate::ids::Incarnation;

/// Who ended without leaving in order is told of until a view is in force that takes it in. A view
/// without members is in force nowhere.
#[test]
fn a_view_without_members_takes_nothing_in() {
    let node = |id| NodeId::new(id).expect("not zero");
    let coordinator = Member {
        node: node(1),
        incarnation: Incarnation(1),
    };
    let cluster = Digest::of_cluster(&"test");
    let view_config = |members: Vec<Member>| ViewConfig {
        cluster,
        epoch: Epoch::new(100).expect("an epoch"),
        parent: cluster,
        since: vec![Epoch::new(100).expect("an epoch"); members.len()],
        members,
        voters: Vec::new(),
        coordinator,
        unclean: vec![node(2)],
        overrides: MembershipOverrides::default(),
        abandons: Vec::new(),
    };
    let changes = Changes {
        members: Vec::new(),
        lost: vec![node(3)],
        left: false,
        came: false,
    };
    let empty = view_config(Vec::new());
    let (both, new) = ([node(2), node(3)], [node(3)]);
    for installed in [false, true] {
        assert_eq!(changes.unclean(&empty, installed), both);
    }
    let view_config = view_config(vec![coordinator]);
    assert_eq!(changes.unclean(&view_config, false), both);
    assert_eq!(changes.unclean(&view_config, true), new);
}
