//! What voters say that they endorsed.

use alloc::collections::BTreeMap;

use super::{Violation, violation};
use distlock_protocol::membership::quorum::{Digest, Endorsement, Voter};
use distlock_protocol::{Epoch, Time};

/// No voter says in all its incarnations that it has endorsed two views of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Endorsements {
    said: BTreeMap<(Voter, Epoch), Digest>,
}

impl Endorsements {
    /// `voter` says that it has endorsed a view.
    ///
    /// # Errors
    /// It has said so of another in that epoch, in this incarnation or before.
    pub(crate) fn endorses(
        &mut self,
        now: Time,
        voter: Voter,
        endorsement: Endorsement,
    ) -> Result<(), Violation> {
        let Endorsement { epoch, digest, .. } = endorsement;
        let said = *self.said.entry((voter, epoch)).or_insert(digest);
        if said != digest {
            return Err(violation!(
                now,
                Durability,
                "{voter:?} says in epoch {epoch} that it has endorsed {digest}, and before {said}"
            ));
        }
        Ok(())
    }

    /// Whether voters have endorsed different views of `epoch`.
    pub(crate) fn has_rivals(&self, epoch: Epoch) -> bool {
        let of_it = self.said.iter().filter(|((_, of), _)| *of == epoch);
        let mut digests = of_it.map(|(_, digest)| digest);
        let first = digests.next();
        digests.any(|digest| Some(digest) != first)
    }
}
