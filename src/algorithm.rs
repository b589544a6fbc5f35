//! The algorithms by which a lock can be served.

use std::fmt;
use std::str::FromStr;

use distlock_agent::protocol::{self, AlgorithmNames};

/// How a lock is served. Choosing another one changes nothing in the program that locks.
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
}

impl Algorithm {
    /// All that are available, `kernel` first.
    pub const ALL: [Self; 13] = [
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
    ];

    /// Names that stand for algorithms which are not available yet.
    const PLANNED: [&str; 1] = ["voting"];

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
        }
    }

    /// As a configured group knows it; `None` for `kernel`.
    pub(crate) fn engine(self) -> Option<protocol::Algorithm> {
        match self {
            Self::Kernel => None,
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
        if let Some(algorithm) = Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
        {
            Ok(algorithm)
        } else if Self::PLANNED.contains(&name) {
            Err(ParseAlgorithmError::NotAvailable {
                name: name.to_owned(),
            })
        } else {
            Err(ParseAlgorithmError::Unknown {
                name: name.to_owned(),
            })
        }
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

/// Why a text is no [`Algorithm`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseAlgorithmError {
    /// There is none of that name.
    #[error(
        "there is no algorithm \"{name}\"; choose {} (kernel in the local group)",
        AlgorithmNames
    )]
    Unknown {
        /// The text.
        name: String,
    },
    /// It is planned, and not available in this version.
    #[error(
        "the algorithm \"{name}\" is not available in this version; choose {}",
        AlgorithmNames
    )]
    NotAvailable {
        /// The text.
        name: String,
    },
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
    fn tells_planned_names_from_unknown_ones() {
        let parse = |name: &str| name.parse::<Algorithm>().unwrap_err();
        assert!(matches!(
            parse("voting"),
            ParseAlgorithmError::NotAvailable { .. }
        ));
        assert!(matches!(
            parse("Bakery"),
            ParseAlgorithmError::Unknown { .. }
        ));
        assert!(matches!(parse(""), ParseAlgorithmError::Unknown { .. }));
    }
}
