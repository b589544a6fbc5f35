//! Whether a member's key or version differs from ours, or only a datagram of its is damaged.
//!
//! One datagram says nothing: bits flip, and anybody can send one from a member's address. A member
//! with another key or of another version sends nothing else, again and again. So an operator is
//! told when several came in some seconds, all with the same fault, and none that could be opened
//! came between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::protocol::{NodeId, Time, wire};
use crate::runtime::net::aead::KeyId;

/// How many it takes.
const ENOUGH: u32 = 5;
/// And in how long a time: members say something every second, or greet twice as often.
const LONG_ENOUGH: Duration = Duration::from_secs(3);
/// Of those that come within such a time only one counts.
const PAUSE: Duration = Duration::from_millis(100);

/// What is wrong with all that comes from a member's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It is not sealed, and this member has a key.
    NotSealed,
    /// It is sealed, and this member has no key.
    Sealed,
    /// It is sealed with that key, which this member does not have.
    OtherKey(KeyId),
    /// It is what members of another version of this program say.
    OtherVersion(u8),
}

impl Fault {
    /// What to do about it.
    fn advice(self) -> &'static str {
        match self {
            Self::OtherVersion(_) => {
                "install the same version on all hosts, and restart their agents"
            }
            _ => "see that all members have the same key_file",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => f.write_str("is not sealed, and this member has a key"),
            Self::Sealed => f.write_str("is sealed, and this member has no key"),
            Self::OtherKey(key) => write!(f, "is sealed with the key {key}, which is not here"),
            Self::OtherVersion(version) => {
                write!(
                    f,
                    "is of version {version} of datagrams, and here that is {}",
                    wire::VERSION
                )
            }
        }
    }
}

/// What came from each member's address and could not be opened, since the last that could.
#[derive(Debug, Default)]
pub(super) struct SenderFaults {
    members: BTreeMap<NodeId, Repeated>,
    /// What was told, once each, so that what anybody can send fills no log.
    told: BTreeSet<(NodeId, Fault)>,
}

#[derive(Clone, Copy, Debug)]
struct Repeated {
    fault: Fault,
    count: u32,
    first: Time,
    last: Time,
}

impl Repeated {
    fn is_certain(&self) -> bool {
        self.count >= ENOUGH && self.last.since(self.first) >= LONG_ENOUGH
    }
}

impl SenderFaults {
    /// Something came from the address of `from` that has this fault. Tells of it, if it is certain
    /// by now.
    pub(super) fn note(&mut self, now: Time, from: NodeId, fault: Fault) {
        let repeated = self.members.entry(from).or_insert(Repeated {
            fault,
            count: 0,
            first: now,
            last: now,
        });
        if repeated.fault != fault {
            (repeated.fault, repeated.count, repeated.first) = (fault, 0, now);
        }
        if repeated.count > 0 && now.since(repeated.last) < PAUSE {
            return;
        }
        repeated.count = repeated.count.saturating_add(1);
        repeated.last = now;
        let (count, lasted) = (repeated.count, now.since(repeated.first));
        if repeated.is_certain() && self.told.insert((from, fault)) {
            tracing::warn!(
                event = "datagrams-refused",
                member = from.as_u16(),
                "what comes from the address of member {from} {fault}: {count} datagrams in {} s, and \
                 none that can be taken; it is not heard: {}",
                lasted.as_secs(),
                fault.advice()
            );
        }
    }

    /// What came from there could be opened: what could not was damaged, or another's.
    pub(super) fn clear(&mut self, from: NodeId) {
        self.members.remove(&from);
    }

    /// Other keys are good from now on.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What is wrong with all that comes from that member's address, if that is certain.
    pub(super) fn of(&self, member: NodeId) -> Option<Fault> {
        let repeated = self
            .members
            .get(&member)
            .filter(|repeated| repeated.is_certain());
        repeated.map(|repeated| repeated.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u16) -> NodeId {
        NodeId::new(id).expect("not 0")
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_damaged_datagram_or_many_at_once_say_nothing_of_keys() {
        let mut faults = SenderFaults::default();
        faults.note(at(0), id(2), Fault::NotSealed);
        assert_eq!(faults.of(id(2)), None, "one");
        for _ in 0..1_000 {
            faults.note(at(50), id(2), Fault::NotSealed);
        }
        assert_eq!(faults.of(id(2)), None, "a burst");
        faults.note(at(60_000), id(2), Fault::NotSealed);
        assert_eq!(faults.of(id(2)), None, "two in a minute");
    }

    #[test]
    fn damage_among_what_can_be_opened_says_nothing_of_keys() {
        let mut faults = SenderFaults::default();
        for second in 0..1_000 {
            faults.note(at(second * 1_000), id(2), Fault::Sealed);
            if second % 4 == 3 {
                faults.clear(id(2));
            }
            assert_eq!(faults.of(id(2)), None, "{second}");
        }
        // Bits flip in the key's name, too, and never alike.
        for second in 0..1_000u64 {
            let key = KeyId::new((second as u32).to_be_bytes());
            faults.note(at(2_000_000 + second * 1_000), id(3), Fault::OtherKey(key));
            assert_eq!(faults.of(id(3)), None, "{second}");
        }
    }

    #[test]
    fn a_member_with_another_key_is_found_out() {
        let mut faults = SenderFaults::default();
        let fault = Fault::OtherKey(KeyId::new([1; KeyId::LEN]));
        for step in 0..6 {
            faults.note(at(step * 500), id(2), fault);
            assert_eq!(faults.of(id(2)), None, "{step}");
        }
        faults.note(at(3_000), id(2), fault);
        assert_eq!(faults.of(id(2)), Some(fault));
        assert_eq!(faults.of(id(3)), None);
        faults.clear(id(2));
        assert_eq!(faults.of(id(2)), None, "it was given the key");
    }
}
