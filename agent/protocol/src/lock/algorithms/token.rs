//! What the algorithms with a token have in common: how often it has moved, by which a token that
//! comes twice is known. Where it comes into being is [`Rebuild::token_home`](super::Rebuild).

/// The number of the token's last hop to this member, or away from it (G3). It only rises, so that
/// a token that comes twice is taken once. It is never matched with a request (G2): a token that
/// nobody here waits for any more would be lost for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Hops(u64);

impl Hops {
    /// The token leaves: the number of that hop.
    pub(super) const fn departs(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// Whether the token that arrives by hop number `hop` is to be taken. It is not if it has been
    /// here; nor with the largest number, after which there could be no other.
    pub(super) const fn arrives(&mut self, hop: u64) -> bool {
        let is_new = hop > self.0 && hop < u64::MAX;
        if is_new {
            self.0 = hop;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_believed_once() {
        let mut hops = Hops::default();
        assert!(hops.arrives(3) && !hops.arrives(3) && !hops.arrives(2));
        assert_eq!(hops.departs(), 4);
        assert!(!hops.arrives(4) && hops.arrives(6));
        assert!(!hops.arrives(u64::MAX) && hops.arrives(u64::MAX - 1));
        assert_eq!(hops.departs(), u64::MAX);
    }
}
