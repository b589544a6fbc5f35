//! What datagrams say: in words, for traces; and what voters endorse in them, for the checkers.

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use distlock_protocol::membership::ViewMessage;
use distlock_protocol::membership::greeting::Greeting;
use distlock_protocol::membership::quorum::{Endorsement, QuorumMessage, Voter};
use distlock_protocol::wire::{Body, GroupId, Header, Kind, decode, decode_all, decode_frames};

/// What `bytes`, sent in the group called `group`, say.
pub fn in_words(group: &str, bytes: &[u8]) -> String {
    let (header, payload) = match decode(GroupId::of(group), bytes) {
        Ok(datagram) => datagram,
        Err(reason) => return format!("what will be dropped: {reason:?}"),
    };
    let ping = if header.ping { ", are you there?" } else { "" };
    if header.kind == Kind::Greeting {
        let greeting = decode_all::<Greeting>(payload).map(|it| (it.up, it.in_view, it.knew_you));
        return format!("a greeting, (up, in view, knew you) = {greeting:?}{ping}");
    }
    if header.kind == Kind::Notice {
        return format!("{:?}{ping}", decode_all::<Body>(payload));
    }
    let frames = decode_frames(payload).unwrap_or_default();
    let mut words = format!("up to {} arrived{ping}", header.acknowledged);
    for (number, frame) in (header.first..).zip(&frames) {
        // A piece of a longer body is not a body.
        let _ = match decode_all::<Body>(&frame.bytes) {
            Ok(body) if !frame.more => write!(words, "; {number}: {:?} {body:?}", header.epoch),
            _ => write!(words, "; {number}: a piece of {} bytes", frame.bytes.len()),
        };
    }
    words
}

/// What a voter says in this datagram that it has endorsed.
pub(super) fn endorsement(header: &Header, payload: &[u8]) -> Option<(Voter, Endorsement)> {
    // In groups as small as those of the simulator it takes no more than a notice.
    if header.kind != Kind::Notice {
        return None;
    }
    let Ok(Body::View(ViewMessage::Quorum(message))) = decode_all(payload) else {
        return None;
    };
    let QuorumMessage::Status(status) = *message else {
        return None;
    };
    Some((status.voter, status.endorsed?))
}
