//! Sealed datagrams: only members with a key of the group are believed.
//!
//! Everything that goes between members goes through here, and is sealed for the way from one
//! address to the next; who passes a datagram on opens it, and seals it again.
//!
//! ```text
//!  0 version (1): 0x83   1 kind (1)   2 zero (2)
//!  4 from (2)            6 to (2); 0: whoever gets it by multicast
//!  8 key (4): its id     12 incarnation (16): 128 random bits, drawn when the sender's process began
//! 28 counter (8): of all that the incarnation has sealed
//! 36 body: encrypted
//!    kind 0: a datagram of the core; kind 1: a challenge, of an incarnation (16), and random (16);
//!    kind 2: the answer, the same random (16)
//! -16 tag: of the body and of all before it
//! ```
//! All numbers are big-endian. The key is made of the group's key, the sender's number and its
//! incarnation (`cipher` says how, and why a counter is enough of a nonce).
//!
//! **What is recorded opens nothing.** Of each sender one incarnation at a time is believed, and of
//! that incarnation each counter once (`window`). An incarnation is believed once it has answered a
//! challenge: so one that has ended is not, however often what it said is sent again. (An answer
//! that was held up on its way until its incarnation had ended is believed, once: it is late, and
//! not a copy.) Nothing is kept for an incarnation that has not answered. The challenge is a hash,
//! under a secret of the receiver's own incarnation, of the sender, the incarnation, and how many
//! incarnations of that sender have answered: the answer of an incarnation that has had a successor
//! is not good any more either. Everything that an incarnation said before its answer counts as
//! lost; the links say it again.
//!
//! **What is not authentic costs little.** It is opened in the buffer it came in, once, if it is no
//! longer than what members send. It changes numbers that count it; and of each member the operator
//! is warned once that it does not seal, and once that it does with an unknown key. Of those for
//! which a key must be made, which cost most, a few a turn are looked at from each address. An
//! authentic datagram of an incarnation that has not answered is answered by one challenge, which
//! is shorter than most.
//!
//! This is pure, like the core: keys and random numbers come from outside, and there is no clock.

mod cipher;
mod key_file;
mod keys;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use zeroize::Zeroizing;

use self::cipher::{Cipher, IncarnationId, TAG};
pub(crate) use self::key_file::KeyFile;
pub use self::key_file::key_ids;
pub use self::keys::{CREDENTIAL, GroupKey, KeyFileError, KeyId, KeyRing, KeyWriteError, MAX_KEYS};
use self::window::Window;
use crate::protocol::{NodeId, wire};

/// The version of sealed datagrams: that of what is in them, and a bit that tells them apart.
pub(crate) const VERSION: u8 = wire::VERSION | SEALED;
const SEALED: u8 = 0x80;
const HEADER: usize = 36;
/// How much longer a datagram is when it is sealed, in bytes.
pub(crate) const OVERHEAD: usize = HEADER + TAG;
/// No sealed datagram is longer: greetings may be, by one long line of settings.
pub(crate) const MAX_LEN: usize = 2 * wire::MAX_DATAGRAM + OVERHEAD;
const _: () = assert!(wire::MAX_DATAGRAM + OVERHEAD == 1400, "as it is said there");

const DATAGRAM: u8 = 0;
const CHALLENGE: u8 = 1;
const ANSWER: u8 = 2;
/// How many datagrams are looked at in one turn, from each address, for which a key must be made: of
/// incarnations that are not believed, or with another of the group's keys than before. A member that
/// starts needs two of them to be believed, and one that changes its key needs one. The others
/// count as lost, so that a flood of them from one address costs little more than taking it off the
/// socket; one from all addresses of a large group can have a key made for each datagram.
const STRANGE_IN_A_TURN: u8 = 4;
/// How many datagrams an agent takes in one turn at most, and so from how many addresses.
pub(crate) const IN_A_TURN: usize = 32;
/// The length of what a challenged incarnation has to say again.
const RANDOM: usize = 16;
/// The length of the random bytes that an incarnation begins with.
pub const SEED: usize = IncarnationId::LEN + 32;

/// What one incarnation of one member seals and opens with.
pub struct Seals {
    me: NodeId,
    incarnation: IncarnationId,
    /// What challenges are made of.
    secret: Zeroizing<[u8; blake3::KEY_LEN]>,
    keys: KeyRing,
    /// Seals with the first of the keys.
    own: Box<Cipher>,
    /// How much was sealed in this incarnation: each of the numbers up to this one is used.
    sealed: u64,
    senders: BTreeMap<NodeId, Sender>,
    /// How many datagrams came in this turn for which a key must be made, by address. There is room
    /// for a whole turn's, so that what anybody can send allocates nothing that stays.
    strange: Vec<(NodeId, u8)>,
}

/// Another member that was believed.
#[derive(Debug)]
struct Sender {
    believed: Believed,
    /// How many of its incarnations have answered a challenge.
    answers: u64,
}

/// The incarnation of another member that has answered last.
#[derive(Debug)]
struct Believed {
    incarnation: IncarnationId,
    window: Window,
    /// Opens what it seals, with the key that it used last, unless that is not good any more.
    cipher: Option<(KeyId, Box<Cipher>)>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this member alone.
    Member(NodeId),
    /// To all members at once.
    Multicast,
}

/// What a sealed datagram was.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// A datagram of an incarnation that is believed, opened in place.
    Datagram(Range<usize>),
    /// These bytes are to be sent to its sender, as they are.
    Reply {
        /// The bytes.
        bytes: Vec<u8>,
        /// What they reply to.
        to: Asked,
    },
    /// The answer of an incarnation that is believed from now on.
    Believed,
    /// It is nothing.
    Dropped(Why),
}

/// What wants a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A datagram of an incarnation that is not believed: it is challenged.
    Unproven,
    /// A challenge: it is answered.
    Challenged,
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is not sealed.
    Unsealed,
    /// It is nothing that was ever sealed: too short or too long, or for another member.
    Malformed,
    /// It begins as datagrams of this version do, sealed or not.
    OtherVersion(u8),
    /// It is sealed with a key that this member does not have.
    UnknownKey(KeyId),
    /// It was not sealed by the member that it names, or was changed on its way.
    Forged,
    /// It came before.
    Replayed,
    /// It answers no challenge that is open, or challenges another incarnation.
    Stale,
    /// A key would have to be made for it, and too many such came in this turn.
    Strange,
}

/// The part of a datagram that can be read by everybody.
struct Header {
    kind: u8,
    key: KeyId,
    incarnation: IncarnationId,
    counter: u64,
}

impl Seals {
    /// Begins an incarnation with `seed`, which must be random.
    pub fn new(me: NodeId, keys: KeyRing, seed: &[u8; SEED]) -> Self {
        let (incarnation, secret) = seed.split_at(IncarnationId::LEN);
        let incarnation = IncarnationId::new(
            incarnation
                .try_into()
                .expect("its length is that of an incarnation"),
        );
        let secret = secret.try_into().expect("the rest is a key of BLAKE3");
        Self {
            me,
            incarnation,
            secret: Zeroizing::new(secret),
            own: Box::new(Cipher::new(keys.first(), me, incarnation)),
            keys,
            sealed: 0,
            senders: BTreeMap::new(),
            strange: Vec::with_capacity(IN_A_TURN),
        }
    }

    /// Another turn: a bounded number of datagrams follows.
    pub fn begin_turn(&mut self) {
        self.strange.clear();
    }

    /// The keys that are good from now on. Incarnations that are believed stay so.
    pub fn change_keys(&mut self, keys: KeyRing) {
        *self.own = Cipher::new(keys.first(), self.me, self.incarnation);
        self.keys = keys;
        for sender in self.senders.values_mut() {
            let cipher = &mut sender.believed.cipher;
            *cipher = cipher
                .take()
                .filter(|(key, _)| self.keys.find(*key).is_some());
        }
    }

    /// The keys that are good.
    pub(crate) fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Puts `bytes`, sealed, in place of what is in `out`.
    pub fn seal(&mut self, to: Destination, bytes: &[u8], out: &mut Vec<u8>) {
        self.seal_as(DATAGRAM, to, bytes, out);
    }

    fn seal_as(&mut self, kind: u8, to: Destination, body: &[u8], out: &mut Vec<u8>) {
        self.sealed += 1;
        out.clear();
        out.extend_from_slice(&[VERSION, kind, 0, 0]);
        out.extend_from_slice(&self.me.as_u16().to_be_bytes());
        out.extend_from_slice(&to.number().to_be_bytes());
        out.extend_from_slice(self.keys.first().id().as_bytes());
        out.extend_from_slice(&self.incarnation.0);
        out.extend_from_slice(&self.sealed.to_be_bytes());
        debug_assert_eq!(out.len(), HEADER);
        out.extend_from_slice(body);
        let (header, body) = out.split_at_mut(HEADER);
        let tag = self.own.seal(self.sealed, header, body);
        out.extend_from_slice(&tag);
    }

    /// Opens, in place, what came from the address of member `from`. `by_multicast`: whether it came
    /// to the group's address.
    pub fn open(&mut self, from: NodeId, by_multicast: bool, bytes: &mut [u8]) -> Opened {
        match self.try_open(from, by_multicast, bytes) {
            Ok(opened) => opened,
            Err(why) => Opened::Dropped(why),
        }
    }

    fn try_open(
        &mut self,
        from: NodeId,
        by_multicast: bool,
        bytes: &mut [u8],
    ) -> Result<Opened, Why> {
        let to = match by_multicast {
            true => Destination::Multicast,
            false => Destination::Member(self.me),
        };
        let len = bytes.len();
        let header = read_header(bytes, from, to)?;
        let group_key = self.keys.find(header.key);
        let group_key = group_key.ok_or(Why::UnknownKey(header.key))?;
        // Of who was never believed nothing is kept.
        let sender = self.senders.get_mut(&from);
        let answers = sender.as_ref().map_or(0, |sender| sender.answers);
        let believed = sender.map(|sender| &mut sender.believed);
        let mut believed = believed.filter(|believed| believed.incarnation == header.incarnation);
        if let Some(believed) = &believed
            && !believed.window.is_new(header.counter)
        {
            return Err(Why::Replayed);
        }

        let known = believed.as_ref().and_then(|it| it.cipher.as_ref());
        let known = known.filter(|(key, _)| *key == header.key);
        let mut fresh = None;
        let cipher = match known {
            Some((_, cipher)) => &**cipher,
            None if has_room(&mut self.strange, from) => {
                &*fresh.insert(Cipher::new(group_key, from, header.incarnation))
            }
            None => return Err(Why::Strange),
        };
        let (readable, rest) = bytes.split_at_mut(HEADER);
        let (body, tag) = rest.split_at_mut(rest.len() - TAG);
        let tag = (&*tag).try_into().expect("it was split off so");
        if !cipher.open(header.counter, readable, body, tag) {
            return Err(Why::Forged);
        }

        let is_believed = believed.is_some();
        if let Some(believed) = &mut believed {
            let is_new = believed.window.take(header.counter);
            debug_assert!(is_new, "that was asked before");
            if let Some(cipher) = fresh.take() {
                believed.cipher = Some((header.key, Box::new(cipher)));
            }
        }
        match header.kind {
            DATAGRAM if is_believed => Ok(Opened::Datagram(HEADER..len - TAG)),
            DATAGRAM => Ok(Opened::Reply {
                bytes: self.challenge(from, header.incarnation, answers),
                to: Asked::Unproven,
            }),
            CHALLENGE => {
                let (incarnation, random) = body
                    .split_at_checked(IncarnationId::LEN)
                    .ok_or(Why::Malformed)?;
                if incarnation != self.incarnation.0 || random.len() != RANDOM {
                    return Err(Why::Stale);
                }
                let mut bytes = Vec::with_capacity(OVERHEAD + RANDOM);
                self.seal_as(ANSWER, Destination::Member(from), random, &mut bytes);
                let to = Asked::Challenged;
                Ok(Opened::Reply { bytes, to })
            }
            // It has answered already, or what it answers was asked in another incarnation.
            ANSWER if is_believed => Err(Why::Stale),
            ANSWER => {
                let expected = random(&self.secret, from, header.incarnation, answers);
                if !is_equal(&expected, body) {
                    return Err(Why::Stale);
                }
                let cipher = match fresh {
                    Some(cipher) => cipher,
                    None => Cipher::new(group_key, from, header.incarnation),
                };
                let believed = Believed {
                    incarnation: header.incarnation,
                    window: Window::after(header.counter),
                    cipher: Some((header.key, Box::new(cipher))),
                };
                let answers = answers + 1;
                self.senders.insert(from, Sender { believed, answers });
                Ok(Opened::Believed)
            }
            _ => Err(Why::Malformed),
        }
    }

    /// Asks an incarnation that is not believed to show that it is there.
    fn challenge(&mut self, from: NodeId, incarnation: IncarnationId, answers: u64) -> Vec<u8> {
        let mut body = [0; IncarnationId::LEN + RANDOM];
        let (addressed, asked) = body.split_at_mut(IncarnationId::LEN);
        addressed.copy_from_slice(&incarnation.0);
        asked.copy_from_slice(&random(&self.secret, from, incarnation, answers));
        let mut challenge = Vec::with_capacity(OVERHEAD + body.len());
        self.seal_as(CHALLENGE, Destination::Member(from), &body, &mut challenge);
        challenge
    }
}

/// By hand, since it depends on zeroize's version whether a derived one would show the secret.
impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals")
            .field("me", &self.me)
            .field("incarnation", &self.incarnation)
            .field("keys", &self.keys)
            .field("sealed", &self.sealed)
            .field("senders", &self.senders)
            .finish_non_exhaustive()
    }
}

/// Whether one more, for which a key must be made, may come from that address in this turn.
fn has_room(strange: &mut Vec<(NodeId, u8)>, from: NodeId) -> bool {
    match strange.iter_mut().find(|(known, _)| *known == from) {
        Some((_, count)) if *count == STRANGE_IN_A_TURN => false,
        Some((_, count)) => {
            *count += 1;
            true
        }
        None => {
            strange.push((from, 1));
            true
        }
    }
}

impl Destination {
    fn number(self) -> u16 {
        match self {
            Self::Member(to) => to.as_u16(),
            Self::Multicast => 0,
        }
    }
}

/// What only the incarnation `incarnation` of member `from` is asked to say, if so many incarnations
/// before it have answered.
fn random(
    secret: &[u8; blake3::KEY_LEN],
    from: NodeId,
    incarnation: IncarnationId,
    answers: u64,
) -> [u8; RANDOM] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(&from.as_u16().to_be_bytes());
    hasher.update(&incarnation.0);
    hasher.update(&answers.to_be_bytes());
    let mut random = [0; RANDOM];
    keys::finish(&mut hasher, &mut random);
    random
}

/// Compares in a time that tells nothing but the lengths.
fn is_equal(expected: &[u8; RANDOM], said: &[u8]) -> bool {
    said.len() == RANDOM
        && expected
            .iter()
            .zip(said)
            .fold(0, |all, (a, b)| all | (a ^ b))
            == 0
}

fn read_header(bytes: &[u8], from: NodeId, to: Destination) -> Result<Header, Why> {
    match bytes.first() {
        Some(&VERSION) if (OVERHEAD..=MAX_LEN).contains(&bytes.len()) => {}
        Some(&wire::VERSION) => return Err(Why::Unsealed),
        Some(&other) if version_of(other) != 0 && other != VERSION => {
            return Err(Why::OtherVersion(version_of(other)));
        }
        _ => return Err(Why::Malformed),
    }
    let is_from_to =
        bytes[4..6] == from.as_u16().to_be_bytes() && bytes[6..8] == to.number().to_be_bytes();
    if bytes[2..4] != [0, 0] || !is_from_to {
        return Err(Why::Malformed);
    }
    Ok(Header {
        kind: bytes[1],
        key: KeyId::new(part(&bytes[8..12])),
        incarnation: IncarnationId::new(part(&bytes[12..28])),
        counter: u64::from_be_bytes(part(&bytes[28..36])),
    })
}

/// The version of a datagram, sealed or not, that begins with `first`.
pub(crate) fn version_of(first: u8) -> u8 {
    first & !SEALED
}

fn part<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the header has a fixed layout")
}

#[cfg(test)]
mod tests;
