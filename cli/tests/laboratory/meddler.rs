//! Somebody in the middle: he hears everything that goes through the switch, keeps what he likes,
//! and sends whatever he likes from whatever address.

use std::collections::{BTreeMap, VecDeque};

use distlock_agent::protocol::checksum::crc_32c;

use crate::network;
use crate::rng::Rng;

/// Where members have their sockets.
const PORT: u16 = 7400;
const IP: usize = 20;
const UDP: usize = 8;
/// Where a datagram, sealed or not, has its sender's and its receiver's number.
const FROM: usize = 4;
const TO: usize = 6;
/// Datagrams that he keeps, the newest; and how many of these may be in a receiver's window still.
const MAX_KEPT: usize = 100_000;
const FRESH: usize = 1_000;

/// What he can do with a datagram that passes, beside letting it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trick {
    /// Sends one again that he has kept.
    Replay,
    /// Changes some of it.
    Mutate,
    /// Cuts it off.
    Truncate,
    /// Sends it back to where it came from, as it is.
    Reflect,
    /// The same, with the numbers of the members made to fit.
    ReflectReadably,
    /// Sends it to another member, with the number made to fit.
    Redirect,
    /// Sends one of his own that looks right as far as he can make it.
    Forge,
    /// The same from an address that is no member's.
    ForgeFromOutside,
}

const TRICKS: [Trick; 8] = [
    Trick::Replay,
    Trick::Mutate,
    Trick::Truncate,
    Trick::Reflect,
    Trick::ReflectReadably,
    Trick::Redirect,
    Trick::Forge,
    Trick::ForgeFromOutside,
];

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct Meddler {
    hosts: u16,
    /// How many of a thousand datagrams give him an idea.
    per_mille: u64,
    /// Whether he can make the checksum right: where there are no seals it is all there is.
    is_checksum_known: bool,
    rng: Rng,
    kept: VecDeque<Passing>,
    tricks: BTreeMap<Trick, u64>,
}

impl Meddler {
    pub(crate) fn new(hosts: u16, per_mille: u64, is_checksum_known: bool, seed: u64) -> Self {
        Self {
            hosts,
            per_mille,
            is_checksum_known,
            rng: Rng::new(seed),
            kept: VecDeque::new(),
            tricks: BTreeMap::new(),
        }
    }

    /// How often he did what.
    pub(crate) fn tricks(&self) -> &BTreeMap<Trick, u64> {
        &self.tricks
    }

    /// All that he has kept, as packets, and to whom they go, in order.
    pub(crate) fn kept(&self) -> Vec<(u16, Vec<u8>)> {
        let packet = |passing: &Passing| (passing.to, packet(passing));
        self.kept.iter().rev().map(packet).collect()
    }

    /// Sees a packet from `from` to `to`; what he sends for it, and where.
    pub(crate) fn sees(&mut self, from: u16, to: u16, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
        let payload = payload(bytes)
            .filter(|payload| !payload.is_empty())?
            .to_vec();
        let passing = Passing { from, to, payload };
        self.kept.truncate(MAX_KEPT - 1);
        self.kept.push_front(passing.clone());
        if !self.rng.happens(self.per_mille) {
            return None;
        }
        let trick = TRICKS[self.below(TRICKS.len())];
        let made = self.play(trick, passing.clone())?;
        // By chance it may be what it was.
        if made == passing && trick != Trick::Replay {
            return None;
        }
        *self.tricks.entry(trick).or_default() += 1;
        Some((made.to, packet(&made)))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.range(0, bound as u64) as usize
    }

    fn play(&mut self, trick: Trick, mut passing: Passing) -> Option<Passing> {
        let (from, to) = (passing.from, passing.to);
        match trick {
            Trick::Replay => {
                // What is old is seen to be so by its number alone: half of them are not.
                let all = self.kept.len();
                let among = [all, all.min(FRESH)][self.below(2)];
                let which = self.below(among);
                return Some(self.kept[which].clone());
            }
            Trick::Mutate => {
                for _ in 0..=self.below(4) {
                    let at = self.below(passing.payload.len());
                    passing.payload[at] ^= 1 << self.below(8);
                }
            }
            Trick::Truncate => {
                let len = self.below(passing.payload.len());
                passing.payload.truncate(len);
            }
            Trick::Reflect => (passing.from, passing.to) = (to, from),
            Trick::ReflectReadably => {
                (passing.from, passing.to) = (to, from);
                passing.renumber();
            }
            Trick::Redirect => {
                let others: Vec<_> = (1..=self.hosts)
                    .filter(|&host| ![from, to].contains(&host))
                    .collect();
                passing.to = others[self.below(others.len())];
                passing.renumber();
            }
            Trick::Forge | Trick::ForgeFromOutside => {
                // The readable part as it was, but for a counter or a sequence number to come.
                let len = passing.payload.len();
                for at in 32.min(len)..len {
                    passing.payload[at] = self.rng.next() as u8;
                }
                if trick == Trick::ForgeFromOutside {
                    passing.from = self.hosts + 1;
                }
            }
        }
        let is_changed = !matches!(trick, Trick::Reflect);
        if is_changed && self.is_checksum_known {
            passing.correct();
        }
        Some(passing)
    }
}

impl Passing {
    /// Writes into it from whom and to whom it goes.
    fn renumber(&mut self) {
        let (from, to) = (self.from, self.to);
        for (at, number) in [(FROM, from), (TO, to)] {
            if let Some(bytes) = self.payload.get_mut(at..at + 2) {
                bytes.copy_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Makes the checksum right that a datagram without a seal ends with.
    fn correct(&mut self) {
        if let Some(at) = self.payload.len().checked_sub(4) {
            let checksum = crc_32c(&self.payload[..at]);
            self.payload[at..].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// What a packet for a member has in it; `None` of other packets, and of parts of one.
pub(crate) fn payload(packet: &[u8]) -> Option<&[u8]> {
    const PROTOCOL: u8 = 17;
    let is_plain = packet.len() >= IP + UDP && packet[0] == 0x45 && packet[9] == PROTOCOL;
    let is_whole = is_plain && (packet[6] & 0x3f, packet[7]) == (0, 0);
    let is_to_member = is_whole && packet[IP + 2..IP + 4] == PORT.to_be_bytes();
    is_to_member.then(|| &packet[IP + UDP..])
}

/// An IPv4 packet (RFC 791) with a UDP datagram (RFC 768), whose checksum is left out.
pub(crate) fn packet(passing: &Passing) -> Vec<u8> {
    let len = |len: usize| u16::try_from(len).expect("it fits a packet").to_be_bytes();
    let udp = UDP + passing.payload.len();
    let mut packet = vec![0x45, 0];
    packet.extend(len(IP + udp));
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(network::address(passing.from).octets());
    packet.extend(network::address(passing.to).octets());
    let sum: u32 = packet
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(PORT.to_be_bytes());
    packet.extend(PORT.to_be_bytes());
    packet.extend(len(udp));
    packet.extend([0, 0]);
    packet.extend(&passing.payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing() -> Passing {
        let (from, to) = (1, 2);
        let mut passing = Passing {
            from,
            to,
            payload: vec![7; 80],
        };
        passing.renumber();
        passing.correct();
        passing
    }

    #[test]
    fn what_he_makes_are_packets() {
        let made = packet(&passing());
        assert_eq!(payload(&made), Some(&passing().payload[..]));
        let sum: u32 = made[..IP]
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "RFC 1071");
        assert_eq!(payload(&made[..IP + UDP - 1]), None);
        let mut part = made.clone();
        part[7] = 1;
        assert_eq!(payload(&part), None);
    }

    #[test]
    fn he_does_all_that_he_can_and_leaves_nothing_as_it_was() {
        let original = packet(&passing());
        for is_checksum_known in [false, true] {
            let mut meddler = Meddler::new(3, 1_000, is_checksum_known, 7);
            for _ in 0..500 {
                let Some((to, made)) = meddler.sees(1, 2, &original) else {
                    continue;
                };
                let last = meddler.tricks.values().sum::<u64>();
                assert!(last > 0 && (1..=3).contains(&to));
                assert!(made != original || meddler.tricks.contains_key(&Trick::Replay));
            }
            assert_eq!(meddler.tricks.len(), TRICKS.len(), "{:?}", meddler.tricks);
            assert_eq!(meddler.kept().len(), 500);
        }
    }
}
