//! Two members that seal, and whoever is between them.

use std::collections::BTreeSet;

use crate::protocol::NodeId;
use crate::runtime::seal::{GroupKey, KeyRing, Opened, SEED, Seals, Way};

/// What was sealed, and whether it must be taken if it comes now.
struct Sealed {
    from: usize,
    /// Which life of that member it is of.
    life: u32,
    number: u32,
    bytes: Vec<u8>,
}

struct Member {
    seals: Seals,
    life: u32,
    /// What was taken of the other: its life, and the number.
    taken: BTreeSet<(u32, u32)>,
}

impl Member {
    fn new(index: usize, life: u32) -> Self {
        let mut seed = [index as u8 + 1; SEED];
        seed[..4].copy_from_slice(&life.to_be_bytes());
        Self {
            seals: Seals::new(id(index), KeyRing::of([GroupKey::of([7; 32])]), &seed),
            life,
            taken: BTreeSet::new(),
        }
    }
}

fn id(index: usize) -> NodeId {
    NodeId::new(index as u16 + 1).expect("not 0")
}

/// Each step: who, what, and a parameter. What is opened was sealed by the other's present life, or
/// one that was there when it was believed; once; and as it was.
pub fn sealed(bytes: &[u8]) {
    let mut members = [Member::new(0, 1), Member::new(1, 1)];
    let mut said: Vec<Sealed> = Vec::new();
    let mut replies: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut lives = 1;
    // The window is a thousand wide: what is lost at once must be more.
    let mut lost = 0;
    for step in bytes.chunks_exact(3) {
        let [what, a, b] = [step[0], step[1], step[2]];
        let who = usize::from(what >> 7);
        match what & 0x7f {
            // Much is said at once, and all of it lost.
            0..2 if lost < 10_000 => {
                lost += usize::from(a) * 8;
                let mut out = Vec::new();
                for _ in 0..usize::from(a) * 8 {
                    let to = Way::Directly(id(1 - who));
                    members[who].seals.seal(to, &[], &mut out);
                }
            }
            // Something is said.
            0..32 => {
                let number = said.len() as u32;
                let mut out = Vec::new();
                let body = [&number.to_be_bytes()[..], &[a, b]].concat();
                let member = &mut members[who];
                member
                    .seals
                    .seal(Way::Directly(id(1 - who)), &body, &mut out);
                let (life, from) = (member.life, who);
                said.push(Sealed {
                    from,
                    life,
                    number,
                    bytes: out,
                });
            }
            // Something that was said comes, now or again.
            32..80 if !said.is_empty() => {
                let which = usize::from(u16::from_be_bytes([a, b])) % said.len();
                let bytes = said[which].bytes.clone();
                arrive(
                    &mut members,
                    &said,
                    &mut replies,
                    1 - said[which].from,
                    bytes,
                );
            }
            // It comes to whom it is not for.
            80..84 if !said.is_empty() => {
                let which = usize::from(a) % said.len();
                let bytes = said[which].bytes.clone();
                arrive(&mut members, &said, &mut replies, said[which].from, bytes);
            }
            // Changed in one byte, or cut off.
            84..96 if !said.is_empty() => {
                let which = usize::from(a) % said.len();
                let mut bytes = said[which].bytes.clone();
                let to = 1 - said[which].from;
                let at = usize::from(b) % bytes.len();
                match what & 1 {
                    0 => bytes[at] ^= 1 << (a % 8),
                    _ => bytes.truncate(at),
                }
                arrive(&mut members, &said, &mut replies, to, bytes);
            }
            // A challenge or an answer comes, now or again.
            96..124 if !replies.is_empty() => {
                let which = usize::from(u16::from_be_bytes([a, b])) % replies.len();
                let (to, bytes) = replies[which].clone();
                arrive(&mut members, &said, &mut replies, to, bytes);
            }
            // It lives anew.
            124..126 => {
                lives += 1;
                members[who] = Member::new(who, lives);
            }
            _ => members.iter_mut().for_each(|it| it.seals.begin_turn()),
        }
        if said.len() + replies.len() > 2_000 {
            return;
        }
    }
}

fn arrive(
    members: &mut [Member; 2],
    said: &[Sealed],
    replies: &mut Vec<(usize, Vec<u8>)>,
    to: usize,
    mut bytes: Vec<u8>,
) {
    let original = bytes.clone();
    let member = &mut members[to];
    match member.seals.open(id(1 - to), false, &mut bytes) {
        Opened::Datagram(at) => {
            let known = said.iter().find(|it| it.bytes == original);
            let known = known.expect("nobody said it");
            assert_eq!(known.from, 1 - to, "it is for the other");
            assert_eq!(bytes[at][..4], known.number.to_be_bytes());
            let is_new = member.taken.insert((known.life, known.number));
            assert!(is_new, "it is taken twice");
        }
        Opened::Reply { bytes, .. } => replies.push((1 - to, bytes)),
        Opened::Believed | Opened::Dropped(_) => {}
    }
}
