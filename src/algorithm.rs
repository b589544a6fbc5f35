//! The algorithms by which a lock can be served.

use std::fmt;
use std::str::FromStr;

use distlock_agent::protocol::{self, AlgorithmNames};

/// How a lock is served. Choosing another one changes nothing in the program that locks.
///
/// ```
/// use distlock::{Algorithm, ParseAlgorithmError};
///
/// let algorithm: Algorithm = "token-ring".parse()?;
/// assert_eq!(algorithm, Algorithm::TokenRing);
/// assert_eq!(algorithm.to_string(), "token-ring");
/// # Ok::<(), ParseAlgorithmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// `kernel`: the local group's only one. The host's kernel decides.
    Kernel,
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
    /// `ledger`: of locks that a store has, their only one. Compare-and-swap on the store's registers.
    Ledger,
}

impl Algorithm {
    /// All that are available, `kernel` first, and `ledger` last.
    pub const ALL: [Self; 16] = [
        Self::Kernel,
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
        Self::Ledger,
    ];

    /// The name in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
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
            Self::Ledger => "ledger",
        }
    }

    /// As a group of members knows it; `None` for `kernel` and `ledger`.
    pub(crate) fn engine(self) -> Option<protocol::Algorithm> {
        match self {
            Self::Kernel | Self::Ledger => None,
            Self::Semaphore => Some(protocol::Algorithm::Semaphore),
            Self::Bakery => Some(protocol::Algorithm::Bakery),
            Self::RicartAgrawala => Some(protocol::Algorithm::RicartAgrawala),
            Self::TokenRing => Some(protocol::Algorithm::TokenRing),
            Self::TokenRingRequests => Some(protocol::Algorithm::TokenRingRequests),
            Self::Lamport => Some(protocol::Algorithm::Lamport),
            Self::CarvalhoRoucairol => Some(protocol::Algorithm::CarvalhoRoucairol),
            Self::Maekawa => Some(protocol::Algorithm::Maekawa),
            Self::Majority => Some(protocol::Algorithm::Majority),
            Self::SuzukiKasami => Some(protocol::Algorithm::SuzukiKasami),
            Self::Singhal => Some(protocol::Algorithm::Singhal),
            Self::Raymond => Some(protocol::Algorithm::Raymond),
            Self::Voting => Some(protocol::Algorithm::Voting),
            Self::Manager => Some(protocol::Algorithm::Manager),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(name: &str) -> Result<Self, ParseAlgorithmError> {
        let mut all = Self::ALL.into_iter();
        all.find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| ParseAlgorithmError {
                name: name.to_owned(),
            })
    }
}

impl From<protocol::Algorithm> for Algorithm {
    fn from(engine: protocol::Algorithm) -> Self {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.engine() == Some(engine))
            .expect("every engine has its algorithm")
    }
}

/// There is no [`Algorithm`] of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no algorithm \"{name}\"; choose {} (kernel in the local group)",
    AlgorithmNames
)]
pub struct ParseAlgorithmError {
    /// The text.
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn every_engine_has_its_algorithm_and_its_name() {
        for engine in protocol::Algorithm::ALL {
            let algorithm = Algorithm::from(engine);
            assert_eq!(algorithm.engine(), Some(engine));
            assert_eq!(algorithm.name(), engine.name());
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["Bakery", "paxos", ""] {
            let error = name.parse::<Algorithm>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("bakery"), "{error}");
        }
    }
}
