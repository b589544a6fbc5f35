//! The members of a configuration: their ids, their addresses, and which of them vote.

use std::collections::{BTreeMap, BTreeSet};

use distlock_agent::protocol::NodeId;
use distlock_agent::runtime::{Address, MulticastAddress};
use toml_span::de_helpers::TableHelper;
use toml_span::{DeserError, Deserialize, Span, Spanned, Value};

use super::fault::Fault;

const MAX_MEMBERS: usize = 1024;
/// How many members vote at most, and by default.
pub(super) const MAX_VOTERS: usize = 7;

/// A `[[member]]`.
pub(super) struct Member {
    id: Spanned<i64>,
    address: Spanned<String>,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let id = table.required_s("id");
        let address = table.required_s("address");
        table.finalize(None)?;
        Ok(Self {
            id: id?,
            address: address?,
        })
    }
}

pub(super) fn read_members(
    members: &[Spanned<Member>],
    may_leave_host: bool,
) -> Result<BTreeMap<NodeId, Address>, Fault> {
    let mut known = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for member in members {
        let Member {
            id: id_text,
            address: address_text,
        } = &member.value;
        let id = read_id(id_text)?;
        let address = read_address(address_text, may_leave_host)?;
        if let Some(other) = addresses
            .insert(address.clone(), id)
            .filter(|other| *other != id)
        {
            let reason = format!("members {other} and {id} have the same address {address}");
            return Err(Fault::new(address_text.span, reason));
        }
        check_reach(known.iter().next(), id, &address)
            .map_err(|reason| Fault::new(address_text.span, reason))?;
        if known.insert(id, address).is_some() {
            let reason = format!("the id {id} is there twice: give each member its own");
            return Err(Fault::new(id_text.span, reason));
        }
    }
    match (members.first(), members.len()) {
        (None, _) => Err(Fault::new(
            Span::default(),
            "there are no members: add a [[member]] with id and address for each",
        )),
        (Some(first), count) if count > MAX_MEMBERS => {
            let reason = format!("there are {count} members: a group has at most {MAX_MEMBERS}");
            Err(Fault::new(first.span, reason))
        }
        _ => Ok(known),
    }
}

fn read_id(id: &Spanned<i64>) -> Result<NodeId, Fault> {
    u16::try_from(id.value)
        .ok()
        .and_then(NodeId::new)
        .ok_or_else(|| {
            let reason = format!("the id {} is out of range: choose 1 to 65535", id.value);
            Fault::new(id.span, reason)
        })
}

fn read_address(text: &Spanned<String>, may_leave_host: bool) -> Result<Address, Fault> {
    let address: Address = text
        .value
        .parse()
        .map_err(|error| Fault::new(text.span, format!("bad address {:?}: {error}", text.value)))?;
    if !address.is_loopback() && !may_leave_host {
        let reason = format!(
            "datagrams to {address} would leave the host unsealed: write a key with distlock keygen, \
             and set key_file; or set insecure = true if everybody in that network may be trusted"
        );
        return Err(Fault::new(text.span, reason));
    }
    Ok(address)
}

/// Whether a socket of the first member can send to another one's address.
fn check_reach(
    first: Option<(&NodeId, &Address)>,
    id: NodeId,
    address: &Address,
) -> Result<(), String> {
    match first {
        Some((other, first)) if kind(first) != kind(address) => Err(format!(
            "member {other} has an address of the kind {}, and member {id} one of the kind {}: \
             they cannot reach each other; choose one kind for all",
            kind(first),
            kind(address),
        )),
        _ => Ok(()),
    }
}

fn kind(address: &Address) -> &'static str {
    match address {
        Address::Udp(address) if address.is_ipv4() => "udp over IPv4",
        Address::Udp(_) => "udp over IPv6",
        Address::Unix(_) => "unix",
    }
}

/// A multicast address of the kind of the members' own, which are all of one kind.
pub(super) fn read_multicast(
    text: &Spanned<String>,
    members: &BTreeMap<NodeId, Address>,
) -> Result<MulticastAddress, Fault> {
    let fault = |reason: String| Fault::new(text.span, reason);
    let address: MulticastAddress = text
        .value
        .parse()
        .map_err(|error| fault(format!("multicast = {:?}: {error}", text.value)))?;
    let kind = match members.values().next() {
        Some(Address::Udp(own)) if !address.is_of_the_kind_of(*own) => kind(&Address::Udp(*own)),
        Some(own @ Address::Unix(_)) => kind(own),
        _ => return Ok(address),
    };
    Err(fault(format!(
        "members have addresses of the kind {kind}, and cannot send to {address}: give multicast \
         an address of their kind, or remove the key"
    )))
}

pub(super) fn read_voters(
    voters: &Spanned<Vec<Spanned<i64>>>,
    members: &BTreeMap<NodeId, Address>,
) -> Result<Vec<NodeId>, Fault> {
    let mut known = BTreeSet::new();
    for voter in &voters.value {
        let id = read_id(voter)?;
        if !members.contains_key(&id) {
            let reason = format!("the voter {id} is no member: add it, or remove it here");
            return Err(Fault::new(voter.span, reason));
        }
        if !known.insert(id) {
            let reason = format!("the voter {id} is there twice: list it once");
            return Err(Fault::new(voter.span, reason));
        }
    }
    if known.is_empty() || known.len() > MAX_VOTERS {
        let reason = format!(
            "{} voters: list 1 to {MAX_VOTERS}, or leave the key out",
            known.len()
        );
        return Err(Fault::new(voters.span, reason));
    }
    Ok(known.into_iter().collect())
}
