//! Which algorithm serves a lock, and how many may be inside.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::request::Mode;

/// An algorithm of a configured group, by its name in the contract.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// `semaphore`: one member, found by hashing the lock's name, grants the permits.
    Semaphore,
    /// `bakery`: Lamport 1974, by messages.
    Bakery,
    /// `ricart-agrawala`: Ricart and Agrawala 1981, with DEFERRED.
    RicartAgrawala,
    /// `token-ring`: a token that circulates for ever, Le Lann 1977.
    TokenRing,
    /// `token-ring-requests`: a token that moves when it is asked for, Martin 1985.
    TokenRingRequests,
    /// `lamport`: the queue of all requests in every member, Lamport 1978.
    Lamport,
    /// `carvalho-roucairol`: permissions that stay good, Carvalho and Roucairol 1983.
    CarvalhoRoucairol,
    /// `maekawa`: the votes of about √N members, Maekawa 1985.
    Maekawa,
    /// `majority`: the votes of a majority, Ricart and Agrawala's request with Maekawa's votes.
    Majority,
    /// `suzuki-kasami`: a token that everybody is asked for, Suzuki and Kasami 1985.
    SuzukiKasami,
    /// `singhal`: a token that is asked for where it is likely to be, Singhal 1989.
    Singhal,
    /// `raymond`: a token in a tree, asked for along the branches, Raymond 1989.
    Raymond,
    /// `voting`: the votes of three quarters of all, tried again by chance, Lin and others 2004. It
    /// excludes with some probability only, and gives no fences.
    Voting,
    /// `manager`: one member, found by hashing the lock's name, lends a token, which goes straight from
    /// each holder to the next; Li and Hudak 1989.
    Manager,
}

impl Algorithm {
    /// All algorithms, in the order of their declaration.
    pub const ALL: [Self; 14] = [
        Self::Semaphore,
        Self::Bakery,
        Self::RicartAgrawala,
        Self::TokenRing,
        Self::TokenRingRequests,
        Self::Lamport,
        Self::CarvalhoRoucairol,
        Self::Maekawa,
        Self::Majority,
        Self::SuzukiKasami,
        Self::Singhal,
        Self::Raymond,
        Self::Voting,
        Self::Manager,
    ];

    /// The name in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Semaphore => "semaphore",
            Self::Bakery => "bakery",
            Self::RicartAgrawala => "ricart-agrawala",
            Self::TokenRing => "token-ring",
            Self::TokenRingRequests => "token-ring-requests",
            Self::Lamport => "lamport",
            Self::CarvalhoRoucairol => "carvalho-roucairol",
            Self::Maekawa => "maekawa",
            Self::Majority => "majority",
            Self::SuzukiKasami => "suzuki-kasami",
            Self::Singhal => "singhal",
            Self::Raymond => "raymond",
            Self::Voting => "voting",
            Self::Manager => "manager",
        }
    }
}

impl Algorithm {
    /// Whether two can be inside though nothing goes wrong with views: where replicas forget their
    /// votes. Such a lock has no fences, and where a majority decides it is refused.
    pub const fn is_probabilistic(self) -> bool {
        matches!(self, Self::Voting)
    }

    /// Whether one member lets in those that share the lock, or one of several permits.
    pub const fn is_central(self) -> bool {
        matches!(self, Self::Semaphore | Self::Manager)
    }

    /// Whether its safety rests on links that keep the order of the messages from one member to
    /// another. The others bear any order.
    pub const fn needs_order(self) -> bool {
        matches!(self, Self::Lamport | Self::Manager)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(UnknownAlgorithm)
    }
}

/// The names of all algorithms, as a message lists them: "a, b or c".
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmNames;

impl fmt::Display for AlgorithmNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = Algorithm::ALL.len() - 1;
        for (place, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            let separator = match place {
                0 => "",
                _ if place == last => " or ",
                _ => ", ",
            };
            write!(f, "{separator}{algorithm}")?;
        }
        Ok(())
    }
}

/// The name of no algorithm of a configured group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown algorithm; choose {}", AlgorithmNames)]
pub struct UnknownAlgorithm;

/// Who goes first of those that want a lock at the same time: the four tie-breaks of Jones's
/// lecture. Each is frozen when the request is made, and of two that are alike the lower id goes
/// first.
///
/// All but [`Priority::Lamport`] are for [`Algorithm::CarvalhoRoucairol`] alone. With Ricart and
/// Agrawala's a request made after a reply to another could rank before that one, and both would
/// be let in.
///
/// The order is that of the wire format: append only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[non_exhaustive]
pub enum Priority {
    /// `lamport`: whose request has the lower Lamport stamp.
    #[default]
    Lamport,
    /// `static`: the lower id. A member of low rank may starve.
    Static,
    /// `least-frequent`: who has entered less often since the view began.
    LeastFrequent,
    /// `least-recent`: whose last entry since the view began was before the other's.
    LeastRecent,
}

impl Priority {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [
        Self::Lamport,
        Self::Static,
        Self::LeastFrequent,
        Self::LeastRecent,
    ];

    /// The name in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lamport => "lamport",
            Self::Static => "static",
            Self::LeastFrequent => "least-frequent",
            Self::LeastRecent => "least-recent",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Priority {
    type Err = UnknownPriority;

    fn from_str(name: &str) -> Result<Self, UnknownPriority> {
        let mut all = Self::ALL.into_iter();
        all.find(|priority| priority.name() == name)
            .ok_or(UnknownPriority)
    }
}

/// The name of no priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown priority; choose lamport, static, least-frequent or least-recent")]
pub struct UnknownPriority;

/// What all members must agree on about one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockSpec {
    /// The algorithm that serves it.
    pub algorithm: Algorithm,
    /// How many requests may be inside at once: more than one only with [`Algorithm::Manager`] and
    /// [`Algorithm::Semaphore`].
    pub permits: NonZeroU32,
    /// Who goes first: another than by Lamport stamps only with
    /// [`Algorithm::CarvalhoRoucairol`].
    pub priority: Priority,
}

impl LockSpec {
    /// A lock for one at a time.
    pub const fn exclusive(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            permits: NonZeroU32::MIN,
            priority: Priority::Lamport,
        }
    }

    /// A counting semaphore, of the default algorithm.
    pub const fn counting(permits: NonZeroU32) -> Self {
        Self {
            algorithm: Algorithm::Manager,
            permits,
            priority: Priority::Lamport,
        }
    }

    /// Whether requests of that mode can be served: shared ones only by the manager and the semaphore,
    /// with one permit.
    pub const fn can_serve(self, mode: Mode) -> bool {
        let is_shareable = self.permits.get() == 1 && self.algorithm.is_central();
        matches!(mode, Mode::Exclusive) || is_shareable
    }

    /// Whether one member lets everybody in, and keeps the mark that a grant was abandoned in its books:
    /// the grants of several permits overlap, and are not joined by a chain of messages.
    pub const fn keeps_books(self) -> bool {
        match self.algorithm {
            Algorithm::Semaphore => true,
            Algorithm::Manager => self.permits.get() > 1,
            _ => false,
        }
    }

    /// Whether a grant of that mode takes the mark away that travels with the grants.
    pub const fn takes_mark(self, mode: Mode) -> bool {
        matches!(mode, Mode::Exclusive) || self.keeps_books()
    }

    /// Whether the algorithm can serve that many permits, by that priority.
    pub const fn is_valid(self) -> bool {
        let is_one = self.permits.get() == 1;
        let is_by_stamps = matches!(self.priority, Priority::Lamport);
        (is_one || self.algorithm.is_central())
            && (is_by_stamps || matches!(self.algorithm, Algorithm::CarvalhoRoucairol))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn priorities_are_read_back_and_all_named() {
        let all = format!("{UnknownPriority}");
        for priority in Priority::ALL {
            assert_eq!(priority.name().parse(), Ok(priority));
            assert!(all.contains(priority.name()));
        }
        assert_eq!("Static".parse::<Priority>(), Err(UnknownPriority));
    }

    /// Ricart and Agrawala's, for one, would let two in.
    #[test]
    fn only_permissions_that_are_conserved_bear_any_priority() {
        for algorithm in Algorithm::ALL {
            for priority in Priority::ALL {
                let spec = LockSpec {
                    priority,
                    ..LockSpec::exclusive(algorithm)
                };
                let is_any = algorithm == Algorithm::CarvalhoRoucairol;
                assert_eq!(spec.is_valid(), is_any || priority == Priority::Lamport);
            }
        }
    }

    #[test]
    fn a_message_names_all() {
        let all = format!("{UnknownAlgorithm}");
        assert!(all.starts_with("unknown algorithm; choose semaphore, bakery, "));
        let names = all.rsplit_once(" or ").expect("a last one");
        assert_eq!(names.1, Algorithm::ALL[Algorithm::ALL.len() - 1].name());
        assert_eq!(names.0.matches(", ").count(), Algorithm::ALL.len() - 2);
    }
}
