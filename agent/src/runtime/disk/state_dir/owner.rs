//! Whose state a directory has.

use crate::protocol::NodeId;

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateOwner {
    pub(crate) group: String,
    pub(crate) node: NodeId,
    /// Where the member is reached, as its configuration says. Two members of one host do not share
    /// an address, so that one with this address and another group's name is the same, renamed.
    pub(crate) address: String,
    /// Which machine this is, if that is known.
    pub(crate) machine: Option<[u8; 8]>,
}

impl StateOwner {
    /// Of this machine.
    pub(crate) fn here(group: &str, node: NodeId, address: String) -> Self {
        Self {
            group: group.to_owned(),
            node,
            address,
            machine: machine(),
        }
    }
}

/// A hash of the machine's id (machine-id(5)), which is not to be told to others as it is; `None`
/// where the machine has none, as in some containers.
fn machine() -> Option<[u8; 8]> {
    let id = std::fs::read_to_string("/etc/machine-id").ok()?;
    let id = id.trim();
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = blake3::derive_key("distlock 2026-11 machine of a state", id.as_bytes());
    is_id.then(|| hash[..8].try_into().expect("eight of them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known_by_a_hash_of_its_id() {
        let Ok(id) = std::fs::read_to_string("/etc/machine-id") else {
            assert_eq!(machine(), None);
            return;
        };
        let id = id.trim();
        let hash = blake3::derive_key("distlock 2026-11 machine of a state", id.as_bytes());
        // Where the machine is set up no further it may be empty, or a word.
        let is_id = id.len() == 32;
        assert_eq!(
            machine().map(|it| it.to_vec()),
            is_id.then(|| hash[..8].to_vec())
        );
    }
}
