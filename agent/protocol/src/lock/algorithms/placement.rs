//! Where a lock lives: the members that serve it, found by hashing its name.

use crate::ids::{LockName, NodeId};

/// The member that serves `lock`, and the one after it, if there is another: highest random weight
/// (Thaler and Ravishankar 1998) over BLAKE3, version 1. All members of a view must agree on both, so
/// this never changes.
pub(super) fn serving_members(lock: &LockName, members: &[NodeId]) -> (NodeId, Option<NodeId>) {
    let weight = |node: NodeId| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"distlock server 1\0");
        hasher.update(&node.as_u16().to_be_bytes());
        hasher.update(lock.as_bytes());
        *hasher.finalize().as_bytes()
    };
    let (mut first, mut second) = (None, None);
    for &node in members {
        let candidate = Some((weight(node), node));
        if candidate > first {
            second = core::mem::replace(&mut first, candidate);
        } else {
            second = candidate.max(second);
        }
    }
    let (_, first) = first.expect("a view has members");
    (first, second.map(|(_, node)| node))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Members of different versions must find the same server.
    #[test]
    fn the_placement_of_servers_is_golden() {
        let members: Vec<_> = (1..=5).filter_map(NodeId::new).collect();
        let placed: Vec<_> = ["printer", "licences", "a", "b", "c", "d", "e", "f"]
            .iter()
            .map(|name| serving_members(&LockName::new(name).unwrap(), &members))
            .map(|(first, second)| (first.as_u16(), second.unwrap().as_u16()))
            .collect();
        assert_eq!(placed, GOLDEN);
    }

    const GOLDEN: [(u16, u16); 8] = [
        (1, 3),
        (1, 3),
        (3, 5),
        (4, 2),
        (4, 3),
        (2, 3),
        (1, 5),
        (5, 1),
    ];

    /// When a member goes, only the locks it served move, and they go to the second.
    #[test]
    fn a_smaller_view_moves_only_what_it_must() {
        let members: Vec<_> = (1..=5).filter_map(NodeId::new).collect();
        for name in 0..100_u32 {
            let lock = LockName::new(alloc::format!("lock {name}")).unwrap();
            let (before, second) = serving_members(&lock, &members);
            let (after, _) = serving_members(&lock, &members[..4]);
            let expected = if before == members[4] {
                second
            } else {
                Some(before)
            };
            assert_eq!(Some(after), expected);
        }
        let lock = LockName::new("printer").unwrap();
        assert_eq!(serving_members(&lock, &members[..1]), (members[0], None));
    }
}
