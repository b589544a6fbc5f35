//! What the seals promise, against somebody who hears, keeps, changes and sends whatever he likes.

use super::*;

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn key() -> GroupKey {
    GroupKey::generate().unwrap()
}

/// A copy: keys have none, so that they are not left lying about.
fn copy(key: &GroupKey) -> GroupKey {
    GroupKey::new((*key.secret()).into())
}

fn seed() -> [u8; SEED] {
    let mut seed = [0; SEED];
    getrandom::fill(&mut seed).unwrap();
    seed
}

/// A new incarnation of member `id`.
fn incarnation(id: u16, key: &GroupKey) -> Seals {
    Seals::new(node(id), KeyRing::new(vec![copy(key)]), &seed())
}

fn sealed(from: &mut Seals, to: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = b"what was there before".to_vec();
    from.seal(Destination::Member(node(to)), bytes, &mut out);
    out
}

/// What `to` makes of `bytes` from the address of `from`, and what it read.
fn take(to: &mut Seals, from: u16, bytes: &[u8]) -> (Opened, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    to.begin_turn();
    let opened = to.open(node(from), false, &mut bytes);
    let read = match &opened {
        Opened::Datagram(at) => bytes[at.clone()].to_vec(),
        _ => Vec::new(),
    };
    (opened, read)
}

fn reply(opened: (Opened, Vec<u8>), expected: Asked) -> Vec<u8> {
    match opened.0 {
        Opened::Reply { bytes, to } if to == expected => bytes,
        other => panic!("{other:?} in place of a reply"),
    }
}

/// Has `to` believe `from`; what was said for that.
fn introduce(from: &mut Seals, to: &mut Seals) -> [Vec<u8>; 3] {
    let (me, other) = (from.me.as_u16(), to.me.as_u16());
    let first = sealed(from, other, b"hello");
    let challenge = reply(take(to, me, &first), Asked::Unproven);
    let answer = reply(take(from, other, &challenge), Asked::Challenged);
    assert_eq!(take(to, me, &answer).0, Opened::Believed);
    [first, challenge, answer]
}

/// A key, and two members, of whom the second believes the first.
fn believed() -> (GroupKey, [Seals; 2]) {
    let key = key();
    let [mut one, mut two] = [1, 2].map(|id| incarnation(id, &key));
    introduce(&mut one, &mut two);
    (key, [one, two])
}

fn dropped(why: Why) -> (Opened, Vec<u8>) {
    (Opened::Dropped(why), Vec::new())
}

#[test]
fn who_has_answered_is_read_once() {
    let (_, [mut one, mut two]) = believed();
    for len in [0, 1, 60, wire::MAX_DATAGRAM, 2 * wire::MAX_DATAGRAM] {
        let bytes = vec![7; len];
        let out = sealed(&mut one, 2, &bytes);
        assert_eq!(out.len(), len + OVERHEAD);
        assert_eq!(take(&mut two, 1, &out).1, bytes);
        assert_eq!(take(&mut two, 1, &out), dropped(Why::Replayed));
    }
}

#[test]
fn what_overtakes_is_read_and_what_is_very_late_is_not() {
    let (_, [mut one, mut two]) = believed();
    let all: Vec<_> = (0..1_100).map(|_| sealed(&mut one, 2, b"x")).collect();
    assert_eq!(take(&mut two, 1, &all[1_050]).1, b"x");
    assert_eq!(take(&mut two, 1, &all[1_050 - 1_023]).1, b"x");
    assert_eq!(
        take(&mut two, 1, &all[1_050 - 1_024]),
        dropped(Why::Replayed)
    );
    assert_eq!(take(&mut two, 1, &all[1_099]).1, b"x");
}

#[test]
fn nothing_of_a_datagram_can_be_changed() {
    let (_, [mut one, mut two]) = believed();
    let out = sealed(&mut one, 2, b"who enters");
    for bit in 0..out.len() * 8 {
        let mut changed = out.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (opened, _) = take(&mut two, 1, &changed);
        assert!(
            matches!(opened, Opened::Dropped(_)),
            "bit {bit}: {opened:?}"
        );
    }
    for len in 0..out.len() {
        let (opened, _) = take(&mut two, 1, &out[..len]);
        assert!(
            matches!(opened, Opened::Dropped(_)),
            "{len} bytes: {opened:?}"
        );
    }
    let longer = [&out[..], &[0]].concat();
    assert_eq!(take(&mut two, 1, &longer), dropped(Why::Forged));
    // None of that was in its way.
    assert_eq!(take(&mut two, 1, &out).1, b"who enters");
}

#[test]
fn a_datagram_is_for_one_member_and_from_one() {
    let key = key();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| incarnation(id, &key));
    introduce(&mut one, &mut two);
    introduce(&mut one, &mut three);
    introduce(&mut two, &mut one);
    let out = sealed(&mut one, 2, b"to two");
    assert_eq!(take(&mut three, 1, &out), dropped(Why::Malformed));
    assert_eq!(
        take(&mut one, 2, &out),
        dropped(Why::Malformed),
        "reflected"
    );
    assert_eq!(
        take(&mut two, 3, &out),
        dropped(Why::Malformed),
        "another's address"
    );
    // With the numbers made to fit.
    let mut redirected = out.clone();
    redirected[7] = 3;
    assert_eq!(take(&mut three, 1, &redirected), dropped(Why::Forged));
    let mut reflected = out.clone();
    (reflected[5], reflected[7]) = (2, 1);
    assert_eq!(take(&mut one, 2, &reflected), dropped(Why::Forged));
}

#[test]
fn multicast_is_for_all_and_comes_only_so() {
    let (_, [mut one, mut two]) = believed();
    let mut out = Vec::new();
    one.seal(Destination::Multicast, b"to all", &mut out);
    assert_eq!(take(&mut two, 1, &out), dropped(Why::Malformed), "directly");
    let opened = two.open(node(1), true, &mut out.clone());
    assert_eq!(opened, Opened::Datagram(HEADER..HEADER + 6));
    let mut direct = sealed(&mut one, 2, b"to two");
    let opened = two.open(node(1), true, &mut direct);
    assert_eq!(opened, Opened::Dropped(Why::Malformed), "by multicast");
}

/// All that an attacker has ever heard, in any order and as often as he likes.
#[test]
fn what_was_recorded_of_an_old_incarnation_opens_nothing() {
    let key = key();
    let [mut old, mut two] = [1, 2].map(|id| incarnation(id, &key));
    let mut recorded: Vec<_> = introduce(&mut old, &mut two).into();
    recorded.extend((0..5).map(|_| sealed(&mut old, 2, b"old")));
    for said in &recorded[3..] {
        assert_eq!(take(&mut two, 1, said).1, b"old");
    }
    let replay = |two: &mut Seals, when: &str| {
        for (number, said) in recorded.iter().chain(recorded.iter().rev()).enumerate() {
            let (opened, _) = take(two, 1, said);
            let changes_nothing = matches!(
                opened,
                Opened::Dropped(_)
                    | Opened::Reply {
                        to: Asked::Unproven,
                        ..
                    }
            );
            assert!(changes_nothing, "{when}, number {number}: {opened:?}");
        }
    };
    replay(&mut two, "while it is believed");

    let mut new = incarnation(1, &key);
    let challenge = reply(
        take(&mut two, 1, &sealed(&mut new, 2, b"hello")),
        Asked::Unproven,
    );
    replay(&mut two, "while its successor is challenged");
    let answer = reply(take(&mut new, 2, &challenge), Asked::Challenged);
    assert_eq!(
        take(&mut two, 1, &answer).0,
        Opened::Believed,
        "all the same"
    );
    replay(&mut two, "after its successor has answered");
    assert_eq!(take(&mut two, 1, &sealed(&mut new, 2, b"new")).1, b"new");

    // The receiver lives anew, and knows of none of that.
    let mut two = incarnation(2, &key);
    replay(&mut two, "after the receiver's restart");
    introduce(&mut new, &mut two);
    replay(&mut two, "when the receiver knows the successor");
    assert_eq!(take(&mut two, 1, &sealed(&mut new, 2, b"new")).1, b"new");
}

/// The old incarnation itself, that stood still while another began: it is believed again when it
/// answers, and then only what it says from there on. Which of the two is the member is for the core.
#[test]
fn an_incarnation_that_comes_back_is_read_from_its_answer_on() {
    let key = key();
    let [mut old, mut new, mut two] = [1, 1, 2].map(|id| incarnation(id, &key));
    introduce(&mut old, &mut two);
    let withheld = sealed(&mut old, 2, b"withheld");
    introduce(&mut new, &mut two);
    introduce(&mut old, &mut two);
    assert_eq!(take(&mut two, 1, &withheld), dropped(Why::Replayed));
    assert_eq!(take(&mut two, 1, &sealed(&mut old, 2, b"now")).1, b"now");
}

#[test]
fn an_answer_is_to_one_challenge_of_one_incarnation() {
    let key = key();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| incarnation(id, &key));
    let hello = sealed(&mut one, 2, b"hello");
    let challenge = reply(take(&mut two, 1, &hello), Asked::Unproven);
    // It is the same as long as it is open, so nothing needs to be kept of it.
    let again = reply(take(&mut two, 1, &hello), Asked::Unproven);
    let answer = reply(take(&mut one, 2, &challenge), Asked::Challenged);
    assert_eq!(take(&mut three, 1, &answer), dropped(Why::Malformed));
    let mut other_two = incarnation(2, &key);
    assert_eq!(take(&mut other_two, 1, &answer), dropped(Why::Stale));
    assert_eq!(take(&mut two, 1, &answer).0, Opened::Believed);
    let second = reply(take(&mut one, 2, &again), Asked::Challenged);
    assert_eq!(
        take(&mut two, 1, &second),
        dropped(Why::Stale),
        "it is open no more"
    );
    // A challenge to a former incarnation of this member.
    let mut new_one = incarnation(1, &key);
    assert_eq!(take(&mut new_one, 2, &challenge), dropped(Why::Stale));
}

#[test]
fn who_has_another_key_or_none_is_not_heard() {
    let (key, other) = (key(), key());
    let mut two = incarnation(2, &key);
    let mut stranger = incarnation(1, &other);
    let out = sealed(&mut stranger, 2, b"hello");
    assert_eq!(
        take(&mut two, 1, &out),
        dropped(Why::UnknownKey(other.id()))
    );
    // With the id of the right key.
    let mut forged = out;
    forged[8..12].copy_from_slice(key.id().as_bytes());
    assert_eq!(take(&mut two, 1, &forged), dropped(Why::Forged));
    let plain = [wire::VERSION; 80];
    assert_eq!(take(&mut two, 1, &plain), dropped(Why::Unsealed));
    assert_eq!(
        take(&mut two, 1, &[0x99; 80]),
        dropped(Why::OtherVersion(0x19))
    );
    assert_eq!(
        take(&mut two, 1, &[0x19; 80]),
        dropped(Why::OtherVersion(0x19))
    );
    assert_eq!(take(&mut two, 1, &[0x80; 80]), dropped(Why::Malformed));
}

/// Who is believed is heard however many strangers there are, and so are those from elsewhere.
#[test]
fn few_strangers_are_looked_at_in_one_turn() {
    let key = key();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|id| incarnation(id, &key));
    introduce(&mut one, &mut two);
    let good = [(); 3].map(|()| sealed(&mut one, 2, b"good"));
    let strange: Vec<_> = (0..20)
        .map(|_| sealed(&mut incarnation(1, &key), 2, b"hello"))
        .collect();
    two.begin_turn();
    let outcomes: Vec<_> = strange
        .iter()
        .map(|bytes| two.open(node(1), false, &mut bytes.clone()))
        .collect();
    let count = usize::from(STRANGE_IN_A_TURN);
    let (first, rest) = outcomes.split_at(count);
    assert!(first.iter().all(|it| matches!(it, Opened::Reply { .. })));
    assert!(rest.iter().all(|it| *it == Opened::Dropped(Why::Strange)));
    let opened = two.open(node(1), false, &mut good[0].clone());
    assert!(matches!(opened, Opened::Datagram(_)), "{opened:?}");
    let mut elsewhere = sealed(&mut three, 2, b"hello");
    let opened = two.open(node(3), false, &mut elsewhere);
    assert!(matches!(opened, Opened::Reply { .. }), "{opened:?}");
    two.begin_turn();
    let opened = two.open(node(1), false, &mut strange[10].clone());
    assert!(matches!(opened, Opened::Reply { .. }), "{opened:?}");

    // Nor does who is believed make many keys necessary, by naming another one each time.
    let other = self::key();
    two.change_keys(KeyRing::new(vec![copy(&key), copy(&other)]));
    two.begin_turn();
    let outcomes: Vec<_> = (0..20)
        .map(|_| {
            let mut forged = sealed(&mut one, 2, b"good");
            forged[8..12].copy_from_slice(other.id().as_bytes());
            two.open(node(1), false, &mut forged)
        })
        .collect();
    let (first, rest) = outcomes.split_at(count);
    assert!(first.iter().all(|it| *it == Opened::Dropped(Why::Forged)));
    assert!(rest.iter().all(|it| *it == Opened::Dropped(Why::Strange)));
}

/// However many strangers speak, nothing grows that stays.
#[test]
fn what_is_not_authentic_takes_no_memory() {
    let key = key();
    let mut two = incarnation(2, &key);
    let room = two.strange.capacity();
    for _ in 0..3 {
        two.begin_turn();
        for id in 100..100 + IN_A_TURN as u16 {
            let mut forged = sealed(&mut incarnation(id, &key), 2, b"hello");
            *forged.last_mut().unwrap() ^= 1;
            let opened = two.open(node(id), false, &mut forged);
            assert_eq!(opened, Opened::Dropped(Why::Forged));
        }
        assert_eq!(two.strange.len(), IN_A_TURN);
    }
    assert_eq!(two.strange.capacity(), room);
    assert!(two.senders.is_empty());
}

/// The new key is added everywhere, then put first, then the old one is removed.
#[test]
fn a_key_is_changed_without_a_pause() {
    let (old, new) = (key(), key());
    let [mut one, mut two] = [1, 2].map(|id| incarnation(id, &old));
    introduce(&mut one, &mut two);
    introduce(&mut two, &mut one);
    let talk = |one: &mut Seals, two: &mut Seals| {
        assert_eq!(take(two, 1, &sealed(one, 2, b"x")).1, b"x");
        assert_eq!(take(one, 2, &sealed(two, 1, b"y")).1, b"y");
    };
    let before = sealed(&mut one, 2, b"before");
    for ring in [[&old, &new], [&new, &old]] {
        for turn in 0..2 {
            let member = if turn == 0 { &mut one } else { &mut two };
            member.change_keys(KeyRing::new(ring.map(copy).into()));
            talk(&mut one, &mut two);
        }
    }
    assert_eq!(take(&mut two, 1, &before).1, b"before");
    assert_eq!(take(&mut two, 1, &before), dropped(Why::Replayed));
    let late = sealed(&mut incarnation(1, &old), 2, b"late");
    for member in [&mut one, &mut two] {
        member.change_keys(KeyRing::new(vec![copy(&new)]));
    }
    talk(&mut one, &mut two);
    assert_eq!(take(&mut two, 1, &late), dropped(Why::UnknownKey(old.id())));
}

/// A virtual machine that is copied has one incarnation twice, and nobody can tell. What the two say
/// with one nonce is different, and neither can be made into anything else.
#[test]
fn a_nonce_that_is_used_twice_gives_nothing_away() {
    let key = key();
    let seed = seed();
    let [mut one, mut copied] =
        [(); 2].map(|()| Seals::new(node(1), KeyRing::new(vec![copy(&key)]), &seed));
    let [a, b] = [&mut one, &mut copied].map(|it| sealed(it, 2, &[0; 64]));
    assert_eq!(a, b, "the same was said");
    let a = sealed(&mut one, 2, &[0; 64]);
    let b = sealed(&mut copied, 2, &[1; 64]);
    assert_eq!(a[..HEADER], b[..HEADER]);
    let stream = |sealed: &[u8], said: u8| -> Vec<u8> {
        sealed[HEADER..HEADER + 64]
            .iter()
            .map(|byte| byte ^ said)
            .collect()
    };
    assert_ne!(
        stream(&a, 0),
        stream(&b, 1),
        "they would with a cipher by nonce alone"
    );

    // What the one says with the content of the other, to somebody who believes them.
    let mut two = incarnation(2, &key);
    introduce(&mut one, &mut two);
    copied.sealed = one.sealed;
    let a = sealed(&mut one, 2, &[0; 64]);
    let b = sealed(&mut copied, 2, &[1; 64]);
    let mixed = [&a[..HEADER], &b[HEADER..HEADER + 64], &a[HEADER + 64..]].concat();
    assert_eq!(take(&mut two, 1, &mixed), dropped(Why::Forged));
    assert_eq!(take(&mut two, 1, &a).1, [0; 64]);
}

#[test]
fn what_is_longer_than_anything_that_is_sealed_is_not_opened() {
    let (_, [mut one, mut two]) = believed();
    let long = sealed(&mut one, 2, &[0; 2 * wire::MAX_DATAGRAM + 1]);
    assert_eq!(take(&mut two, 1, &long), dropped(Why::Malformed));
}

#[test]
fn no_secret_is_shown() {
    let [mut one, mut two] = [1, 2].map(|id| {
        let mut seed = [0; SEED];
        seed[IncarnationId::LEN..].fill(0xd7);
        Seals::new(
            node(id),
            KeyRing::new(vec![GroupKey::new([0xd7; 32].into())]),
            &seed,
        )
    });
    introduce(&mut one, &mut two);
    for shown in [format!("{two:?}"), format!("{two:#?}"), format!("{two:x?}")] {
        let shown = shown.to_lowercase();
        assert!(!shown.contains("215") && !shown.contains("d7"), "{shown}");
    }
}

/// RFC 8452, appendix C.2: one of its vectors, so that it is known to be that cipher.
#[test]
fn the_cipher_is_that_of_the_rfc() {
    use aes_gcm_siv::aead::{AeadInOut, KeyInit};
    let mut key = [0; 32];
    key[0] = 1;
    let mut nonce = [0; 12];
    nonce[0] = 3;
    let cipher = aes_gcm_siv::Aes256GcmSiv::new((&key).into());
    let mut text = [0; 8];
    text[0] = 1;
    let nonce = aes_gcm_siv::Nonce::from(nonce);
    let tag = cipher.encrypt_inout_detached(&nonce, b"", text.as_mut_slice().into());
    assert_eq!(text, [0xc2, 0xef, 0x32, 0x8e, 0x5c, 0x71, 0xc8, 0x3b]);
    let expected = [
        0x84, 0x31, 0x22, 0x13, 0x0f, 0x73, 0x64, 0xb7, 0x61, 0xe0, 0xb9, 0x74, 0x27, 0xe3, 0xdf,
        0x28,
    ];
    assert_eq!(tag.unwrap().as_slice(), expected);
}
