use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use base64ct::{Base64, Encoding};

use super::*;
use crate::runtime::net::aead::keys::*;

/// A key file with `text`, which its owner alone can read.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("group.key");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    (root, path)
}

fn line(key: &GroupKey) -> String {
    format!("{} {}\n", key.id(), Base64::encode_string(key.secret()))
}

fn refused(path: &Path) -> String {
    KeyFile::open(path).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read_and_never_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("group.key");
    let key = GroupKey::generate().unwrap();
    key.write(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let (_, ring) = KeyFile::open(&path).unwrap();
    assert_eq!(ring.first().secret(), key.secret());
    let again = GroupKey::generate().unwrap().write(&path).unwrap_err();
    assert!(matches!(again, KeyWriteError::Exists { .. }), "{again}");
    assert_eq!(KeyFile::open(&path).unwrap().1.first().id(), key.id());
    assert!(!format!("{key:?}").contains(&Base64::encode_string(key.secret())));
}

#[test]
fn who_cannot_read_one_is_told_what_helps() {
    let (_root, path) = file("");
    let below = refused(&path.join("group.key"));
    assert!(below.contains("; give the path of one"), "{below}");
    for errno in 1..=133 {
        let path = path.clone();
        let source = io::Error::from_raw_os_error(errno);
        let told = KeyFileError::Io { path, source }.to_string();
        assert!(told.contains(';'), "no advice: {told}");
    }
}

#[test]
fn who_cannot_write_one_is_told_what_helps() {
    let told = |errno| {
        let path = PathBuf::from("group.key");
        let source = io::Error::from_raw_os_error(errno);
        KeyWriteError::Io { path, source }.to_string()
    };
    for (errno, advice) in [
        (libc::ENOENT, "; make its directory first"),
        (libc::ENOSPC, "; make room there"),
        (libc::EROFS, "; choose a place that can be written to"),
        (libc::EACCES, "; choose a directory of yours"),
        (libc::ENAMETOOLONG, "; choose another name"),
        (libc::EIO, "; choose another name"),
    ] {
        assert!(told(errno).contains(advice), "{}", told(errno));
    }
}

#[test]
fn a_hasher_is_cleared_when_it_is_done_with() {
    let mut hasher = blake3::Hasher::new_derive_key(ID_CONTEXT);
    hasher.update(&[7; KEY]);
    let expected = *hasher.finalize().as_bytes();
    let mut out = [0; blake3::OUT_LEN];
    finish(&mut hasher, &mut out);
    assert_eq!(out, expected);
    assert_eq!(hasher.count(), 0);
    assert_ne!(*hasher.finalize().as_bytes(), expected);
}

#[test]
fn the_first_key_seals_and_all_are_known() {
    let keys = [(); MAX_KEYS].map(|()| GroupKey::generate().unwrap());
    let text: String = keys.iter().map(line).collect();
    let (_root, path) = file(&format!("# ours\n\n{text}"));
    let (_, ring) = KeyFile::open(&path).unwrap();
    let ids: Vec<_> = ring.ids().collect();
    assert_eq!(ids, keys.each_ref().map(GroupKey::id));
    assert_eq!(ring.first().id(), keys[0].id());
    let unknown = GroupKey::generate().unwrap();
    assert!(ring.find(unknown.id()).is_none());

    let (_root, path) = file(&format!("{text}{}", line(&unknown)));
    let why = refused(&path);
    assert!(why.contains("line 5") && why.contains("too many"), "{why}");
}

#[test]
fn what_is_no_key_is_refused_with_its_line() {
    let key = GroupKey::generate().unwrap();
    let good = line(&key);
    let text = good.split_whitespace().nth(1).unwrap();
    let cases = [
        (String::new(), "has no key"),
        ("# nothing\n".to_owned(), "has no key"),
        (format!("# a\n{text}\n"), "line 2: a key's line has"),
        (format!("{good}{good}"), "line 2: this key is there already"),
        (format!("00000000 {text}\n"), "line 1: the id is not that"),
        (format!("{} {}\n", key.id(), &text[1..]), "base64"),
        (format!("{} AAAA\n", key.id()), "base64"),
        (format!("{} {text} {text}\n", key.id()), "a key's line has"),
        (
            "x".repeat(20_000),
            "longer than any key file: copy it again",
        ),
    ];
    for (text, why) in cases {
        let (_root, path) = file(&text);
        let refused = refused(&path);
        assert!(refused.contains(why), "{text:?}: {refused}");
        assert!(refused.contains("group.key"), "{refused}");
    }
    let (_root, path) = file("");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let why = refused(&path);
    assert!(why.contains("is not a text: copy it again"), "{why}");
    assert!(!why.contains("line"), "{why}");
}

#[test]
fn others_may_not_read_or_write_it() {
    let (_root, path) = file(&line(&GroupKey::generate().unwrap()));
    for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o440, 0o700 | 0o001] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let why = refused(&path);
        assert!(
            why.contains(&format!("{mode:04o}")) && why.contains("chmod"),
            "{why}"
        );
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    KeyFile::open(&path).unwrap();
    assert!(refused(path.parent().unwrap()).contains("is no file"));
    let pipe = path.with_extension("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(refused(&pipe).contains("is no file"));
    assert!(refused(&path.with_extension("missing")).contains("distlock keygen"));
    let directory = path.parent().unwrap();
    std::fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    assert!(refused(&path).contains("everybody can change"));
    std::fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
    KeyFile::open(&path).unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        assert!(refused(&path).contains("belongs to user 12345"));
    }
}

#[test]
fn a_credential_is_where_the_service_manager_says() {
    let plain = Path::new("/etc/group.key");
    assert_eq!(resolve(plain, None).unwrap(), plain);
    let given = Path::new("$CREDENTIALS_DIRECTORY/group.key");
    let directory = || Some("/run/credentials/a".into());
    let expected = Path::new("/run/credentials/a/group.key");
    assert_eq!(resolve(given, directory()).unwrap(), expected);
    let refused = resolve(given, None).unwrap_err().to_string();
    assert!(refused.contains("LoadCredential"), "{refused}");
}

#[test]
fn it_is_read_again_when_it_has_changed() {
    let [first, second] = [(); 2].map(|()| GroupKey::generate().unwrap());
    let (_root, path) = file(&line(&first));
    let (mut file, _) = KeyFile::open(&path).unwrap();
    assert!(file.read_again().is_none());
    let next = path.with_extension("next");
    std::fs::write(&next, line(&first) + &line(&second)).unwrap();
    std::fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&next, &path).unwrap();
    let ring = file.read_again().unwrap().unwrap();
    assert_eq!(ring.ids().count(), 2);
    assert!(file.read_again().is_none());
    // A wrong one is told of once; one that is away for a moment, not at all.
    std::fs::write(&path, "nonsense").unwrap();
    file.read_again().unwrap().unwrap_err();
    assert!(file.read_again().is_none());
    std::fs::remove_file(&path).unwrap();
    let told = (0..3 * MISSES).filter_map(|_| file.read_again()).count();
    assert_eq!(told, 1, "when it stays away");
    std::fs::write(&path, line(&second)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        file.read_again().unwrap().unwrap().first().id(),
        second.id()
    );
}
