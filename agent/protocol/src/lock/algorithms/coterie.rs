//! Coteries: who votes for whom, such that any two voting sets have a member in common
//! (Garcia-Molina and Barbara 1985, JACM 32(4)).
//!
//! Members are counted 0 to N-1 in the order of their ids. Every voting set has its owner in it, so
//! that a vote of one's own costs no message, and any two of them intersect, so that a member votes
//! for one at a time is all that is needed for exclusion. That holds within one view only: voting
//! sets of different memberships need not intersect.
//!
//! - *Plane*: the lines of a finite projective plane, as the translates of a perfect difference
//!   set, in which every residue but 0 is a difference exactly once. Of N = q²+q+1 members each
//!   has q+1 voters and votes for q+1; two sets meet in exactly one member, and no smaller sets do
//!   (Maekawa 1985: N = K(K-1)+1). Planes of other sizes are *folded*: the lines of the next
//!   larger one, with N for 0, N+1 for 1 and so on. Owners stay in their sets and sets go on
//!   intersecting; only the load is not equal any more.
//! - *Grid*: a row and a column of ⌈√N⌉ columns, 2√N-1 voters if N is a square. The last row may be
//!   too short for some columns; whoever is in it has a whole column, which meets all other rows.
//! - *Majority*: the owner and the ⌊N/2⌋ after it, around the ring.
//!
//! Maekawa's algorithm takes planes as far as the table of difference sets goes, and grids beyond:
//! up to there the planes, folded or not, are the better in every respect (a test compares them):
//! voters in the mean and at most, and members for whom one votes at most. Planes of more than 183
//! members are not in the table, as a group of so many is not what this is for.

use alloc::vec::Vec;

/// Perfect difference sets, by the size of their planes.
const PLANES: [(usize, &[usize]); 9] = [
    (7, &[0, 1, 3]),
    (13, &[0, 1, 3, 9]),
    (21, &[0, 1, 4, 14, 16]),
    (31, &[0, 1, 3, 8, 12, 18]),
    (57, &[0, 1, 3, 13, 32, 36, 43, 52]),
    (73, &[0, 1, 3, 7, 15, 31, 36, 54, 63]),
    (91, &[0, 1, 3, 9, 27, 49, 56, 61, 77, 81]),
    (133, &[0, 1, 3, 12, 20, 34, 38, 81, 88, 94, 104, 109]),
    (
        183,
        &[0, 1, 3, 16, 23, 28, 42, 76, 82, 86, 119, 137, 154, 175],
    ),
];

/// The voting sets of a group of some size. All members of a view must agree on them, so they
/// never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Coterie {
    size: usize,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    Plane {
        order: usize,
        differences: &'static [usize],
    },
    Grid {
        columns: usize,
    },
    Majority,
}

impl Coterie {
    /// Small sets: about √N voters of a plane, 2√N of a grid.
    pub(super) fn maekawa(size: usize) -> Self {
        Self::plane(size).unwrap_or_else(|| Self::grid(size))
    }

    /// More than half of the members.
    pub(super) const fn majority(size: usize) -> Self {
        let shape = Shape::Majority;
        Self { size, shape }
    }

    /// The plane of that size, or the next larger one folded.
    fn plane(size: usize) -> Option<Self> {
        let (order, differences) = PLANES.into_iter().find(|(order, _)| *order >= size)?;
        let shape = Shape::Plane { order, differences };
        Some(Self { size, shape })
    }

    fn grid(size: usize) -> Self {
        let root = size.isqrt();
        let columns = root + usize::from(root * root < size);
        let shape = Shape::Grid { columns };
        Self { size, shape }
    }

    /// The voters of `owner`, in order.
    pub(super) fn voters(self, owner: usize) -> Vec<usize> {
        let size = self.size;
        let mut voters: Vec<usize> = match self.shape {
            Shape::Plane { order, differences } => differences
                .iter()
                .map(|difference| (owner + difference) % order % size)
                .collect(),
            Shape::Grid { columns } => {
                let (row, column) = (owner / columns, owner % columns);
                let cells = (0..size.div_ceil(columns)).map(|row| row * columns + column);
                let row = row * columns..size.min((row + 1) * columns);
                row.chain(cells.filter(|cell| *cell < size)).collect()
            }
            Shape::Majority => (owner..=owner + size / 2)
                .map(|voter| voter % size)
                .collect(),
        };
        voters.sort_unstable();
        voters.dedup();
        voters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond the largest plane, and of every size below.
    const SIZES: core::ops::RangeInclusive<usize> = 1..=210;

    /// Voting sets as sets of bits: of so many all pairs can be looked at.
    fn sets(coterie: Coterie) -> Vec<Vec<u64>> {
        let set = |owner| {
            let mut bits = alloc::vec![0; coterie.size.div_ceil(64)];
            for voter in coterie.voters(owner) {
                assert!(voter < coterie.size, "{coterie:?}");
                bits[voter / 64] |= 1 << (voter % 64);
            }
            bits
        };
        (0..coterie.size).map(set).collect()
    }

    fn in_common(a: &[u64], b: &[u64]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a & b).count_ones()).sum()
    }

    fn assert_is_a_coterie(coterie: Coterie) {
        let sets = sets(coterie);
        for (owner, set) in sets.iter().enumerate() {
            assert!(
                set[owner / 64] >> (owner % 64) & 1 == 1,
                "{owner} of {coterie:?}"
            );
            for other in &sets[..owner] {
                assert!(in_common(set, other) > 0, "{coterie:?}");
            }
        }
    }

    /// All voting sets together, the largest, and for how many one votes at most.
    fn measures(coterie: Coterie) -> [usize; 3] {
        let mut votes = alloc::vec![0; coterie.size];
        let (mut sum, mut largest) = (0, 0);
        for voters in (0..coterie.size).map(|owner| coterie.voters(owner)) {
            sum += voters.len();
            largest = largest.max(voters.len());
            voters.into_iter().for_each(|voter| votes[voter] += 1);
        }
        [sum, largest, votes.into_iter().max().unwrap_or_default()]
    }

    #[test]
    fn maekawa_sets_intersect_and_contain_their_owners() {
        SIZES.map(Coterie::maekawa).for_each(assert_is_a_coterie);
    }

    #[test]
    fn grids_intersect_and_contain_their_owners() {
        SIZES.map(Coterie::grid).for_each(assert_is_a_coterie);
        assert_is_a_coterie(Coterie::grid(1000));
    }

    #[test]
    fn majorities_intersect_and_contain_their_owners() {
        SIZES.map(Coterie::majority).for_each(assert_is_a_coterie);
    }

    /// N = K(K-1)+1, K voters, votes for K, and two lines meet in one point. (S4's K ≥ √(N-1) is
    /// loose.)
    #[test]
    fn planes_are_projective() {
        for (order, differences) in PLANES {
            let k = differences.len();
            assert_eq!(order, k * (k - 1) + 1);
            let plane = Coterie::maekawa(order);
            assert_eq!(measures(plane), [order * k, k, k], "{order}");
            let sets = sets(plane);
            for (owner, set) in sets.iter().enumerate() {
                for other in &sets[..owner] {
                    assert_eq!(in_common(set, other), 1, "{order}");
                }
            }
        }
    }

    /// S4's picture of 36 members is a grid, with K = 11 and not √36.
    #[test]
    fn grids_have_a_row_and_a_column() {
        for root in 1..=16 {
            let k = 2 * root - 1;
            let size = root * root;
            assert_eq!(measures(Coterie::grid(size)), [size * k, k, k]);
        }
        assert_eq!(Coterie::grid(36).voters(0).len(), 11);
        assert_eq!(Coterie::grid(8).voters(2), [0, 1, 2, 5], "none for the gap");
    }

    #[test]
    fn majorities_are_of_more_than_half() {
        for size in SIZES {
            let k = size / 2 + 1;
            assert_eq!(measures(Coterie::majority(size)), [size * k, k, k]);
        }
    }

    /// Why there are grids only where there is no plane.
    #[test]
    fn planes_are_better_than_grids() {
        let mut planes = 0;
        for size in SIZES {
            let Some(plane) = Coterie::plane(size) else {
                assert!(size > 183);
                continue;
            };
            planes += 1;
            let (plane, grid) = (measures(plane), measures(Coterie::grid(size)));
            assert!(
                plane.iter().zip(grid).all(|(plane, grid)| *plane <= grid),
                "{size}: {plane:?}, {grid:?}"
            );
        }
        assert_eq!(planes, 183);
    }

    /// Members of different versions must vote for each other in the same way.
    #[test]
    fn voting_sets_are_golden() {
        let mut hasher = blake3::Hasher::new();
        for coterie in SIZES.flat_map(|n| [Coterie::maekawa(n), Coterie::majority(n)]) {
            for voters in (0..coterie.size).map(|owner| coterie.voters(owner)) {
                for voter in voters {
                    hasher.update(&(voter as u16).to_be_bytes());
                }
                hasher.update(&[0xff, 0xff]);
            }
        }
        let hash = hasher.finalize().to_hex();
        assert_eq!(&hash[..32], GOLDEN);
        assert_eq!(Coterie::maekawa(3).voters(2), [0, 2]);
        assert_eq!(Coterie::maekawa(5).voters(3), [1, 3, 4]);
        assert_eq!(Coterie::majority(4).voters(3), [0, 1, 3]);
    }

    const GOLDEN: &str = "5c74225ef833baef6e6c850bd5d80fec";
}
