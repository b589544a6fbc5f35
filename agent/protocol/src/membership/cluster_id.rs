//! The name of a cluster: what `status` tells, and what files and operators give back.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names one cluster among all that were ever founded under a group's name. Written as 16
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub(crate) [u8; 8]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is not 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster is named by 16 hexadecimal digits, as `distlock status` shows them")]
pub struct ParseClusterIdError;

impl FromStr for ClusterId {
    type Err = ParseClusterIdError;

    fn from_str(text: &str) -> Result<Self, ParseClusterIdError> {
        let is_plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).map_err(|_| ParseClusterIdError)?;
        if is_plain {
            Ok(Self(number.to_be_bytes()))
        } else {
            Err(ParseClusterIdError)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        let id = ClusterId([0, 1, 0x2f, 0xab, 0xff, 0, 0, 0x10]);
        assert_eq!(id.to_string(), "00012fabff000010");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "00012fabff00001",
            "00012fabff0000100",
            "+0012fabff000010",
            "x",
        ] {
            assert_eq!(bad.parse::<ClusterId>(), Err(ParseClusterIdError), "{bad}");
        }
    }
}
