//! The seal itself: AES-256-GCM-SIV (RFC 8452) under a key of one incarnation of one member.
//!
//! Why this one: it is the only one in wide use with which a nonce that is used twice breaks
//! nothing. It is not used twice as far as a program can see to it: the key belongs to one
//! incarnation, which has drawn 128 random bits, and the nonce is a counter of that incarnation.
//! But a virtual machine that is copied while it runs has the incarnation, the key and the counter
//! twice, and no program can tell. With ChaCha20-Poly1305 or AES-GCM whoever saw two different
//! datagrams with one nonce could forge others. Here the nonce goes into a hash of all that is
//! sealed, and both nonce and content must be the same before anything is: then the same datagram
//! was sent twice, and that is all that can be seen (RFC 8452, section 9).
//!
//! Why from RustCrypto: it is built without a C compiler and CMake, and clears its keys. AWS-LC has
//! the same cipher four to five times as fast (`benches/ciphers`): a datagram of 64 bytes takes it
//! 153 ns, not 722. An entry between two members has two seals and two opens on its way, so that
//! this costs it some 2.3 µs, of the 41 at least that it takes. A build without a second tool chain
//! is worth that.

use std::fmt;

use aes_gcm_siv::aead::{AeadInOut, KeyInit};
use aes_gcm_siv::aes::Aes256;
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::keys::{self, GroupKey};
use crate::protocol::NodeId;

/// The length of what proves that a datagram is authentic.
pub(super) const TAG: usize = 16;
const NONCE: usize = 12;
/// What the keys made here are for: they have nothing in common with any other use of the key.
const CONTEXT: &str = "distlock 2026-11 datagrams of one life of one member";

/// One incarnation of one member: 128 random bits, drawn when its process starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IncarnationId(pub(super) [u8; Self::LEN]);

impl IncarnationId {
    pub(super) const LEN: usize = 16;

    pub(super) fn new(random: [u8; Self::LEN]) -> Self {
        Self(random)
    }
}

/// Seals and opens what one member says in one incarnation, under one key of the group.
///
/// What is kept is in a box: where it is moved, within a collection for one, it would leave a copy
/// behind that nothing clears. What a stranger's datagrams are tried with is not, as nothing is
/// allocated for those.
pub(super) struct Cipher(Aes256GcmSiv);

// A feature has it clear its keys, which can be lost with another version of a crate.
const _: () = {
    const fn is_cleared_at_its_end<T: ZeroizeOnDrop>() {}
    is_cleared_at_its_end::<Aes256>();
};

impl Cipher {
    pub(super) fn new(group_key: &GroupKey, member: NodeId, incarnation: IncarnationId) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(group_key.secret());
        hasher.update(&member.as_u16().to_be_bytes());
        hasher.update(&incarnation.0);
        let mut key = Zeroizing::new([0; blake3::OUT_LEN]);
        keys::finish(&mut hasher, &mut *key);
        Self(Aes256GcmSiv::new((&*key).into()))
    }

    /// Seals `body` in place, and `header` with it, which stays readable. `counter` must be another
    /// one each time.
    pub(super) fn seal(&self, counter: u64, header: &[u8], body: &mut [u8]) -> [u8; TAG] {
        let tag = self
            .0
            .encrypt_inout_detached(&nonce(counter), header, body.into());
        tag.expect("a datagram is shorter than 64 GiB").into()
    }

    /// Opens `body` in place; whether it is authentic, and `header` with it. If not, what is in
    /// `body` afterwards means nothing.
    #[must_use]
    pub(super) fn open(
        &self,
        counter: u64,
        header: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG],
    ) -> bool {
        self.0
            .decrypt_inout_detached(&nonce(counter), header, body.into(), tag.into())
            .is_ok()
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl fmt::Debug for IncarnationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IncarnationId({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; NONCE];
    nonce[NONCE - size_of::<u64>()..].copy_from_slice(&counter.to_be_bytes());
    nonce.into()
}
