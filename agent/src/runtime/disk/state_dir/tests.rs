//! State directories over incarnations, and with all in them that others can have put there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;

use super::record::CRC_LEN;
use super::slots::Exchange;
use super::*;
use crate::protocol::checksum::crc_32c;
use crate::protocol::{AbandonedMarks, Affiliation, Epoch, Incarnation, NodeId, VoterRecord};
use crate::runtime::skipped::skipped;

fn owner() -> StateOwner {
    StateOwner {
        group: "shop".to_owned(),
        node: NodeId::new(3).unwrap(),
        address: "udp:10.0.0.3:7400".to_owned(),
        machine: Some(*b"machine."),
    }
}

fn record() -> Record {
    Record {
        incarnation: Incarnation(0x0102_0304_0506_0708),
        epoch: Epoch::new(0x1112_1314).unwrap(),
        clean: true,
        marks: AbandonedMarks::None,
        affiliation: Affiliation::new(Incarnation(7)),
        voter: None,
    }
}

fn voter() -> Arc<VoterRecord> {
    Arc::new(VoterRecord::from_bytes(VOTER).unwrap())
}

/// A birth, nothing endorsed yet, and a lease of 5 s.
const VOTER: &[u8] = b"\x07\x00\x00\x00\x05\x00\x00";

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Version 3, byte for byte: what is on disks must stay readable.
#[test]
fn golden_bytes() {
    let bytes = encode(&record(), &owner());
    let mut expected = b"distlock\x03\x01\x00\x03".to_vec();
    expected.extend_from_slice(b"\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14machine.");
    expected.extend_from_slice(b"\x00\x04\x00\x11\x00\x04shopudp:10.0.0.3:7400\x07\x00\x00\x00");
    let fixed = expected.len();
    expected.extend_from_slice(&GOLDEN_CRC);
    assert_eq!(bytes, expected);
    assert_eq!(decode(&bytes), Ok((record(), owner())));
    for (marks, flags) in [(AbandonedMarks::Shared, 3), (AbandonedMarks::Own, 5)] {
        let record = Record { marks, ..record() };
        let bytes = encode(&record, &owner());
        assert_eq!(bytes[9], flags);
        assert_eq!(decode(&bytes), Ok((record, owner())));
    }
    let record = Record {
        voter: Some(voter()),
        ..record()
    };
    let bytes = encode(&record, &owner());
    assert_eq!(bytes[..fixed], expected[..fixed]);
    assert_eq!(bytes[fixed..bytes.len() - CRC_LEN], *VOTER);
    assert_eq!(decode(&bytes), Ok((record.clone(), owner())));
    let unknown = StateOwner {
        machine: None,
        ..owner()
    };
    assert_eq!(decode(&encode(&record, &unknown)), Ok((record, unknown)));
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc_32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn refuses_a_voter_that_makes_no_sense() {
    let mut bytes = encode(&record(), &owner());
    bytes.truncate(bytes.len() - CRC_LEN);
    bytes.extend_from_slice(b"\x07\x02");
    assert!(matches!(decode(&sealed(bytes)), Err(Flaw::Damaged(_))));
}
const GOLDEN_CRC: [u8; 4] = [90, 117, 167, 60];

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let good = encode(
        &Record {
            voter: Some(voter()),
            ..record()
        },
        &owner(),
    );
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(decode(&bad), Err(Flaw::Damaged(_))), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(
            matches!(decode(&good[..len]), Err(Flaw::Damaged(_))),
            "length {len}"
        );
    }
}

#[test]
fn keeps_the_last_record_over_incarnations() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b");
    let (mut state, none) = StateDir::open(&path, owner()).unwrap();
    assert_eq!(none, None);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    state
        .write(Record {
            clean: false,
            ..record()
        })
        .unwrap();
    state.write(record()).unwrap();
    drop(state);
    let (_state, last) = StateDir::open(&path, owner()).unwrap();
    assert_eq!(last, Some(record()));
}

/// So that no descriptor is needed for the next one.
#[test]
fn two_files_take_turns_in_being_the_state() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    let mut inodes = Vec::new();
    // One is shorter than the one before.
    for voter in [None, Some(voter()), None, None, Some(voter())] {
        let record = Record { voter, ..record() };
        state.write(record.clone()).unwrap();
        assert_eq!(state.read().unwrap(), Some(record));
        inodes.push(fs::metadata(path("state")).unwrap().ino());
        assert_eq!(fs::metadata(path("state.new")).unwrap().len(), 0);
    }
    if state.slots.exchange.is_none() {
        return skipped("this file system cannot exchange names");
    }
    assert_ne!(inodes[0], inodes[1]);
    assert!(inodes.iter().zip(&inodes[2..]).all(|(a, b)| a == b));
}

/// As on NFS: nothing that is open is replaced there, and one file is open, to be written to.
#[test]
fn where_names_cannot_be_exchanged_the_new_file_is_renamed() {
    let root = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    state.slots.exchange = Some(|_, _| Err(Errno::EINVAL));
    let mut epoch = record().epoch;
    for _ in 0..4 {
        epoch = epoch.next().unwrap();
        let record = Record { epoch, ..record() };
        state.write(record.clone()).unwrap();
        assert_eq!(state.read().unwrap(), Some(record));
    }
    assert!(state.slots.exchange.is_none(), "it is not tried again");
    assert!(state.slots.written.is_none());
    assert_eq!(
        fs::metadata(root.path().join("state.new")).unwrap().len(),
        0
    );
}

/// To rename after it could put the old state back.
#[test]
fn an_exchange_that_may_have_been_done_is_an_error() {
    let next = || Record {
        epoch: record().epoch.next().unwrap(),
        ..record()
    };
    let done: Exchange = |one, other| slots::exchange(one, other).and(Err(Errno::EIO));
    let twice: Exchange = |one, other| {
        slots::exchange(one, other)?;
        slots::exchange(one, other)
    };
    for (exchange, found) in [(done, next()), (twice, record())] {
        let root = tempfile::tempdir().unwrap();
        let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
        state.write(record()).unwrap();
        state.slots.exchange = Some(exchange);
        let error = state.write(next()).unwrap_err();
        assert!(matches!(error, StateError::Io { .. }), "{error}");
        assert_eq!(state.read().unwrap(), Some(found));
        drop(state);
        StateDir::open(root.path(), owner()).unwrap();
    }
}

/// By its own user, as nobody else may write there.
#[test]
fn whatever_is_done_to_the_files_meanwhile_the_state_is_the_last_one() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let old = encode(&record(), &owner());
    fs::write(path("victim"), &old).unwrap();
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    let remove = |path: &PathBuf| fs::remove_file(path).unwrap();
    let link = |path: &PathBuf| {
        remove(path);
        symlink("victim", path).unwrap();
    };
    let replace = |path: &PathBuf| {
        remove(path);
        fs::write(path, &old).unwrap();
    };
    let share = |path: &PathBuf| chmod(path, 0o660);
    let also = root.path().join("also");
    let name = |path: &PathBuf| {
        let _ = fs::remove_file(&also);
        fs::hard_link(path, &also).unwrap();
    };
    let leave = |_: &PathBuf| {};
    let blows: [&dyn Fn(&PathBuf); 6] = [&remove, &link, &replace, &share, &name, &leave];
    let mut epoch = record().epoch;
    for (first, second) in blows.iter().flat_map(|a| blows.map(|b| (a, b))) {
        for _ in 0..3 {
            epoch = epoch.next().unwrap();
            let record = Record { epoch, ..record() };
            state.write(record.clone()).unwrap();
            assert_eq!(state.read().unwrap(), Some(record));
        }
        first(&path("state"));
        second(&path("state.new"));
    }
    assert_eq!(fs::read(path("victim")).unwrap(), old);
    // Nothing of it is left with which the next incarnation would be refused.
    drop(state);
    StateDir::open(root.path(), owner()).unwrap();
}

#[test]
fn one_process_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let (first, _) = StateDir::open(root.path(), owner()).unwrap();
    let second = StateDir::open(root.path(), owner()).unwrap_err();
    assert!(matches!(second, StateError::InUse { pid: Some(pid), .. }
        if pid == std::process::id()));
    drop(first);
    StateDir::open(root.path(), owner()).unwrap();
}

fn refused(path: &Path) -> StateError {
    StateDir::open(path, owner()).unwrap_err()
}

/// What others could put there, or have put there while they could.
#[test]
fn refuses_what_others_could_change() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    for mode in [0o770, 0o702, 0o1777] {
        chmod(root.path(), mode);
        let why = refused(root.path()).to_string();
        assert!(why.contains(&format!("{mode:04o}")), "{why}");
    }
    // Below one that everybody can change, nothing is even made.
    chmod(root.path(), 0o777);
    let why = refused(&path("a/b")).to_string();
    assert!(why.contains("everybody") && !path("a").exists(), "{why}");
    chmod(root.path(), 0o755);

    let victim = path("victim");
    let precious = "much longer than the number of any process";
    fs::write(&victim, precious).unwrap();
    for name in ["state", "lock"] {
        let link = || symlink("victim", path(name)).unwrap();
        let hard_link = || fs::hard_link(&victim, path(name)).unwrap();
        let pipe = || nix::unistd::mkfifo(&path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let directory = || fs::create_dir(path(name)).unwrap();
        let open = || {
            fs::write(path(name), "").unwrap();
            chmod(&path(name), 0o666);
        };
        // From before.
        let _ = fs::remove_file(path(name));
        for plant in [&link as &dyn Fn(), &hard_link, &pipe, &directory, &open] {
            plant();
            let error = refused(root.path());
            assert!(!matches!(error, StateError::InUse { .. }), "{error}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), precious);
            let _ = fs::remove_file(path(name)).or_else(|_| fs::remove_dir(path(name)));
        }
        if geteuid().is_root() {
            fs::write(path(name), "").unwrap();
            std::os::unix::fs::chown(path(name), Some(12_345), None).unwrap();
            let why = refused(root.path()).to_string();
            assert!(why.contains("belongs to user 12345"), "{why}");
            fs::remove_file(path(name)).unwrap();
        }
    }
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    symlink("victim", path("state.new")).unwrap();
    state.write(record()).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), precious);
    assert!(!fs::symlink_metadata(path("state")).unwrap().is_symlink());
}

/// A second name of what is as short as a lock, which was written to, and given to the keeper of the
/// directory. A user that may not open a file could link it where links are not protected.
#[test]
fn refuses_other_names_of_other_files() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("d")).unwrap();
    let refused = || {
        let operator = StateDir::recover(&path("d"), owner(), None, &BTreeSet::new());
        [refused(&path("d")), operator.unwrap_err()].map(|why| why.to_string())
    };
    fs::write(path("victim"), "12345\n").unwrap();
    for name in ["d/lock", "d/state"] {
        fs::hard_link(path("victim"), path(name)).unwrap();
        for why in refused() {
            assert!(why.contains("one name") && why.contains(name), "{why}");
        }
        fs::remove_file(path(name)).unwrap();
    }
    assert_eq!(fs::read_to_string(path("victim")).unwrap(), "12345\n");
    if !geteuid().is_root() {
        return;
    }
    let user = Some(12_345);
    fs::remove_file(path("d/lock")).unwrap();
    std::os::unix::fs::chown(path("d"), user, None).unwrap();
    fs::hard_link(path("victim"), path("d/lock")).unwrap();
    let [_, why] = refused();
    assert!(why.contains("one name"), "{why}");
    assert_eq!(fs::metadata(path("victim")).unwrap().uid(), 0);
    // A file of root's that is there stays root's; one that is made is the keeper's.
    fs::remove_file(path("victim")).unwrap();
    let unnamed = StateDir::recover(&path("d"), owner(), None, &BTreeSet::new()).unwrap_err();
    assert!(matches!(unnamed, StateError::Unnamed { .. }), "{unnamed}");
    assert_eq!(fs::metadata(path("d/lock")).unwrap().uid(), 0);
    fs::remove_file(path("d/lock")).unwrap();
    let _unnamed = StateDir::recover(&path("d"), owner(), None, &BTreeSet::new()).unwrap_err();
    assert_eq!(fs::metadata(path("d/lock")).unwrap().uid(), 12_345);
    // And others than the keeper may not write there, for root either.
    for (mode, word) in [(0o770, "0770"), (0o1777, "everybody's to write to")] {
        fs::set_permissions(path("d"), fs::Permissions::from_mode(mode)).unwrap();
        let [_, why] = refused();
        assert!(why.contains(word), "{why}");
    }
}

/// A link of this user's may lead to another disk, and a directory of another user's above is
/// his who named it.
#[test]
fn follows_links_that_nobody_else_made() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("disk")).unwrap();
    symlink("disk", root.path().join("base")).unwrap();
    let path = root.path().join("base/shop-3");
    StateDir::open(&path, owner()).unwrap();
    assert!(root.path().join("disk/shop-3/lock").exists());
}

#[test]
fn refuses_what_is_damaged_or_of_another() {
    let root = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    state.write(record()).unwrap();
    drop(state);
    let other = StateOwner {
        node: NodeId::new(4).unwrap(),
        ..owner()
    };
    let error = StateDir::open(root.path(), other).unwrap_err();
    assert!(matches!(error, StateError::Foreign { .. }), "{error}");

    let file = root.path().join("state");
    fs::write(&file, b"").unwrap();
    let error = StateDir::open(root.path(), owner()).unwrap_err();
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");

    let mut later = encode(&record(), &owner());
    later.truncate(later.len() - CRC_LEN);
    later[8] = 4;
    fs::write(&file, sealed(later)).unwrap();
    let error = StateDir::open(root.path(), owner()).unwrap_err();
    assert!(
        matches!(error, StateError::Version { version: 4, .. }),
        "{error}"
    );
}

/// A state that was copied could vote in two places at once.
#[test]
fn refuses_a_state_of_another_machine() {
    let root = tempfile::tempdir().unwrap();
    let (mut state, _) = StateDir::open(root.path(), owner()).unwrap();
    state.write(record()).unwrap();
    drop(state);
    let elsewhere = StateOwner {
        machine: Some(*b"another."),
        ..owner()
    };
    let error = StateDir::open(root.path(), elsewhere).unwrap_err();
    assert!(matches!(error, StateError::OtherMachine { .. }), "{error}");
    // Where the machine cannot be told it may be the same.
    let unknown = StateOwner {
        machine: None,
        ..owner()
    };
    assert_eq!(
        StateDir::open(root.path(), unknown).unwrap().1,
        Some(record())
    );
}

/// The others may go on under the old name, and hold the same locks.
#[test]
fn refuses_a_group_that_was_renamed_here() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let (mut state, _) = StateDir::open(&path("shop-3"), owner()).unwrap();
    state.write(record()).unwrap();
    drop(state);
    let renamed = StateOwner {
        group: "store".to_owned(),
        ..owner()
    };
    let error = StateDir::open(&path("store-3"), renamed.clone()).unwrap_err();
    assert!(
        matches!(&error, StateError::Renamed { before, .. } if before == "shop"),
        "{error}"
    );
    // Another group of this host is reached elsewhere.
    let other = StateOwner {
        address: "udp:10.0.0.3:7401".to_owned(),
        ..renamed.clone()
    };
    StateDir::open(&path("other-3"), other).unwrap();
    fs::remove_dir_all(path("shop-3")).unwrap();
    StateDir::open(&path("store-3"), renamed).unwrap();
}
