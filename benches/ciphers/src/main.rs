//! Seals and opens datagrams of 64 to 256 bytes, with the 36 bytes of a header beside them, by every
//! cipher in turn, again and again; prints medians in nanoseconds.
//!
//! ```text
//! cargo run --release --manifest-path benches/ciphers/Cargo.toml
//! ```

use std::hint::black_box;
use std::time::Instant;

use aes_gcm_siv::aead::{AeadInOut, KeyInit};

const HEADER: [u8; 36] = [7; 36];
const TAG: usize = 16;
const RUNS: usize = 31;
const TIMES: u64 = 20_000;

/// Seals with a nonce, or opens; both in place, the tag last.
trait Cipher {
    fn seal(&self, nonce: [u8; 12], bytes: &mut [u8]);
    fn open(&self, nonce: [u8; 12], bytes: &mut [u8]) -> bool;
}

struct RustCrypto<C>(C);

impl<C: AeadInOut> Cipher for RustCrypto<C> {
    fn seal(&self, nonce: [u8; 12], bytes: &mut [u8]) {
        let (body, tag) = bytes.split_at_mut(bytes.len() - TAG);
        let nonce = nonce[..].try_into().expect("96 bits");
        let made = self.0.encrypt_inout_detached(nonce, &HEADER, body.into());
        tag.copy_from_slice(&made.expect("short"));
    }

    fn open(&self, nonce: [u8; 12], bytes: &mut [u8]) -> bool {
        let (body, tag) = bytes.split_at_mut(bytes.len() - TAG);
        let nonce = nonce[..].try_into().expect("96 bits");
        let tag = (&*tag).try_into().expect("128 bits");
        let opened = self.0.decrypt_inout_detached(nonce, &HEADER, body.into(), tag);
        opened.is_ok()
    }
}

/// ring, and aws-lc-rs, which has its interface.
macro_rules! less_safe {
    ($name:ident, $library:ident) => {
        struct $name($library::aead::LessSafeKey);

        impl $name {
            fn new(algorithm: &'static $library::aead::Algorithm) -> Self {
                let key = $library::aead::UnboundKey::new(algorithm, &KEY);
                Self($library::aead::LessSafeKey::new(key.expect("its length")))
            }
        }

        impl Cipher for $name {
            fn seal(&self, nonce: [u8; 12], bytes: &mut [u8]) {
                use $library::aead::{Aad, Nonce};
                let (body, tag) = bytes.split_at_mut(bytes.len() - TAG);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = self
                    .0
                    .seal_in_place_separate_tag(nonce, Aad::from(HEADER), body);
                tag.copy_from_slice(made.expect("short").as_ref());
            }

            fn open(&self, nonce: [u8; 12], bytes: &mut [u8]) -> bool {
                use $library::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                self.0.open_in_place(nonce, Aad::from(HEADER), bytes).is_ok()
            }
        }
    };
}

less_safe!(Ring, ring);
less_safe!(Aws, aws_lc_rs);

const KEY: [u8; 32] = [9; 32];

fn ciphers() -> Vec<(&'static str, Box<dyn Cipher>)> {
    let key = (&KEY).into();
    vec![
        (
            "RustCrypto ChaCha20-Poly1305",
            Box::new(RustCrypto(chacha20poly1305::ChaCha20Poly1305::new(key))),
        ),
        (
            "RustCrypto AES-256-GCM",
            Box::new(RustCrypto(aes_gcm::Aes256Gcm::new(key))),
        ),
        (
            "RustCrypto AES-256-GCM-SIV",
            Box::new(RustCrypto(aes_gcm_siv::Aes256GcmSiv::new(key))),
        ),
        (
            "ring ChaCha20-Poly1305",
            Box::new(Ring::new(&ring::aead::CHACHA20_POLY1305)),
        ),
        (
            "ring AES-256-GCM",
            Box::new(Ring::new(&ring::aead::AES_256_GCM)),
        ),
        (
            "aws-lc-rs ChaCha20-Poly1305",
            Box::new(Aws::new(&aws_lc_rs::aead::CHACHA20_POLY1305)),
        ),
        (
            "aws-lc-rs AES-256-GCM",
            Box::new(Aws::new(&aws_lc_rs::aead::AES_256_GCM)),
        ),
        (
            "aws-lc-rs AES-256-GCM-SIV",
            Box::new(Aws::new(&aws_lc_rs::aead::AES_256_GCM_SIV)),
        ),
    ]
}

fn main() {
    println!("bytes  cipher                           seal ns  open ns");
    for len in [64, 128, 256] {
        let ciphers = ciphers();
        let mut took = vec![[Vec::new(), Vec::new()]; ciphers.len()];
        for _ in 0..RUNS {
            for ((_, cipher), [seal, open]) in ciphers.iter().zip(&mut took) {
                let mut bytes = vec![1; len + TAG];
                seal.push(time(|nonce| cipher.seal(nonce, black_box(&mut bytes))));
                let nonce = [3; 12];
                cipher.seal(nonce, &mut bytes);
                let sealed = bytes.clone();
                open.push(time(|_| {
                    bytes.copy_from_slice(&sealed);
                    assert!(cipher.open(nonce, black_box(&mut bytes)));
                }));
            }
        }
        for ((name, _), took) in ciphers.iter().zip(took) {
            let [seal, open] = took.map(median);
            println!("{len:5}  {name:30}  {seal:8.0}  {open:7.0}");
        }
    }
    let of_life = median((0..RUNS).map(|_| {
        time(|nonce| {
            let mut hasher = blake3::Hasher::new_derive_key("what a key is for");
            hasher.update(&KEY).update(&nonce);
            let key = *hasher.finalize().as_bytes();
            black_box(aes_gcm_siv::Aes256GcmSiv::new((&key).into()));
        })
    }).collect());
    println!("the key of an incarnation, and its cipher: {of_life:.0} ns");
}

/// Of one call, in nanoseconds.
fn time(mut call: impl FnMut([u8; 12])) -> f64 {
    let start = Instant::now();
    for number in 0..TIMES {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        call(nonce);
    }
    start.elapsed().as_nanos() as f64 / TIMES as f64
}

fn median(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
