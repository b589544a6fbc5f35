//! What a member says of its cluster, and remembers.

use super::*;

#[test]
fn a_member_notes_the_voters_of_its_cluster_when_they_change() {
    let mut out = Outbox::new(node(5));
    let own = Affiliation::new(Incarnation(1));
    let mut founding = FoundingPart::new(member(5, 1), own, (Epoch::ZERO, LEASE), at(0));
    let mut membership = Membership::of(&first());
    let mut written = |membership: &Membership| {
        founding.join(membership.clone(), &mut out);
        let actions = out.take();
        let noted = founding.affiliation().membership();
        assert_eq!(noted.map(|its| &its.voters), Some(&membership.voters));
        actions.len()
    };
    assert_eq!(written(&membership), 1);
    assert_eq!(written(&membership), 0, "it is on disk");
    membership.voters.pop();
    assert_eq!(written(&membership), 1);
}

/// What is not on disk may be forgotten, and then this member could accept the founding after all.
#[test]
fn a_member_says_that_it_is_in_another_cluster_when_that_is_on_disk() {
    let mut out = Outbox::new(node(5));
    let own = Affiliation::new(Incarnation(1));
    let mut part = FoundingPart::new(member(5, 1), own, (Epoch::ZERO, LEASE), at(0));
    part.join(Membership::of(&first()), &mut out);
    out.take();
    let mut view_config = first();
    view_config.cluster = Digest([7; 32]);
    let founding = Founding {
        view_config,
        parties: Vec::new(),
        longest: LEASE,
        abandons: None,
    };
    for is_on_disk in [false, true] {
        if is_on_disk {
            part.persisted();
        }
        part.offered(at(1), (node(1), founding.clone()), &config(), &mut out);
        assert_eq!(out.take().len(), usize::from(is_on_disk));
    }
}
