//! What is in the file `state`, byte for byte: magic, version, flags, node, incarnation, epoch, machine
//! (zeros if it is unknown), and three lengths; the fields that have these lengths, which are the group's
//! name, the member's address and its [`Affiliation`]; the [`VoterRecord`], if the member votes; and the
//! checksum.

use std::sync::Arc;

use super::owner::StateOwner;
use crate::protocol::checksum::crc_32c;
use crate::protocol::{
    AbandonedMarks, Affiliation, Epoch, Incarnation, NodeId, Record, VoterRecord,
};

const MAGIC: [u8; 8] = *b"distlock";
/// The present version, and the only one: earlier ones do not say which cluster the member is in.
pub(super) const VERSION: u8 = 3;
pub(super) const CRC_LEN: usize = 4;
/// No state file is longer; a longer one is not read into memory. A voter remembers two views, and those
/// in its log that are not decided yet, which is far less.
pub(super) const MAX_LEN: usize = 17 << 20;

pub(super) fn encode(record: &Record, owner: &StateOwner) -> Vec<u8> {
    let affiliation = record.affiliation.to_bytes();
    let parts = [
        owner.group.as_bytes(),
        owner.address.as_bytes(),
        &affiliation,
    ];
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    let marks = match record.marks {
        AbandonedMarks::None => 0,
        AbandonedMarks::Shared => 1,
        AbandonedMarks::Own => 2,
    };
    let flags = u8::from(record.clean) | marks << 1;
    bytes.extend_from_slice(&[VERSION, flags]);
    bytes.extend_from_slice(&owner.node.as_u16().to_be_bytes());
    bytes.extend_from_slice(&record.incarnation.0.to_be_bytes());
    bytes.extend_from_slice(&record.epoch.as_u32().to_be_bytes());
    bytes.extend_from_slice(&owner.machine.unwrap_or_default());
    for part in parts {
        let len = u16::try_from(part.len()).expect("names are short, and voters are few");
        bytes.extend_from_slice(&len.to_be_bytes());
    }
    for part in parts {
        bytes.extend_from_slice(part);
    }
    if let Some(voter) = &record.voter {
        bytes.extend_from_slice(&voter.to_bytes());
    }
    let crc = crc_32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Version(u8),
    Damaged(&'static str),
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Record, StateOwner), Flaw> {
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_LEN>() else {
        return Err(Flaw::Damaged("it is too short"));
    };
    let Some(mut fields) = body.strip_prefix(&MAGIC) else {
        return Err(Flaw::Damaged("it does not start like a state file"));
    };
    if crc_32c(body) != u32::from_be_bytes(*crc) {
        return Err(Flaw::Damaged("its checksum is wrong"));
    }
    // From here on the bytes are as they were written: what does not fit is a defect of ours or
    // another version's.
    fn take<const N: usize>(fields: &mut &[u8]) -> Result<[u8; N], Flaw> {
        let Some((field, rest)) = fields.split_first_chunk::<N>() else {
            return Err(Flaw::Damaged("it ends too early"));
        };
        *fields = rest;
        Ok(*field)
    }
    let [version] = take(&mut fields)?;
    if version != VERSION {
        return Err(Flaw::Version(version));
    }
    let [flags] = take(&mut fields)?;
    let marks = match (flags >> 1) & 3 {
        0 => AbandonedMarks::None,
        1 => AbandonedMarks::Shared,
        2 => AbandonedMarks::Own,
        _ => return Err(Flaw::Damaged("it has a mark that does not exist")),
    };
    if flags >> 3 != 0 {
        return Err(Flaw::Damaged("it has a flag that does not exist"));
    }
    let node = NodeId::new(u16::from_be_bytes(take(&mut fields)?))
        .ok_or(Flaw::Damaged("it names member 0"))?;
    let incarnation = Incarnation(u64::from_be_bytes(take(&mut fields)?));
    let epoch = Epoch::new(u32::from_be_bytes(take(&mut fields)?))
        .ok_or(Flaw::Damaged("its epoch is out of range"))?;
    let machine: [u8; 8] = take(&mut fields)?;
    let mut lengths = [0; 3];
    for len in &mut lengths {
        *len = usize::from(u16::from_be_bytes(take(&mut fields)?));
    }
    let mut part = |len| {
        let (part, rest) = fields.split_at_checked(len)?;
        fields = rest;
        Some(part)
    };
    let parts = lengths.map(&mut part);
    let [Some(group), Some(address), Some(affiliation)] = parts else {
        return Err(Flaw::Damaged("its length is wrong"));
    };
    let affiliation = Affiliation::from_bytes(affiliation);
    let affiliation =
        affiliation.ok_or(Flaw::Damaged("what it says of the cluster makes no sense"))?;
    let voter = match fields {
        [] => None,
        voter => {
            let voter = VoterRecord::from_bytes(voter);
            let voter = voter.ok_or(Flaw::Damaged("what it says of a voter makes no sense"))?;
            Some(Arc::new(voter))
        }
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
    let group = text(group).map_err(|_| Flaw::Damaged("its group's name is not UTF-8"))?;
    let address = text(address).map_err(|_| Flaw::Damaged("its address is not UTF-8"))?;
    Ok((
        Record {
            incarnation,
            epoch,
            clean: flags & 1 != 0,
            marks,
            affiliation,
            voter,
        },
        StateOwner {
            group,
            node,
            address,
            machine: Some(machine).filter(|machine| *machine != [0; 8]),
        },
    ))
}
