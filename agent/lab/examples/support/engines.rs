//! Engines on the command line.

use std::str::FromStr;

use distlock_protocol::{Algorithm, UnknownAlgorithm};

/// One algorithm or, as `all`, each of them.
#[derive(Clone, Debug)]
pub(crate) struct Engines(pub(crate) Vec<Algorithm>);

impl FromStr for Engines {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "all" => Ok(Self(Algorithm::ALL.to_vec())),
            name => Ok(Self(vec![name.parse()?])),
        }
    }
}
