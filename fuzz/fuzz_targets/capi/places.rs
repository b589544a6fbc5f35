//! Where it all happens: a directory of this process alone, in memory where there is such a place,
//! since fences are put on disk.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::LazyLock;

use crate::c::Options;
use crate::model::Group;

/// Made before there are other threads.
pub static PLACES: LazyLock<Places> = LazyLock::new(Places::new);

pub struct Places {
    directory: PathBuf,
    quorum: CString,
    presuming: CString,
    nowhere: CString,
    null_device: CString,
    state: CString,
    names: Vec<CString>,
}

/// What options can say.
pub struct Nonsense {
    pub config: *const libc::c_char,
    pub socket: *const libc::c_char,
    pub state: *const libc::c_char,
}

impl Places {
    /// How many files of fences there are, of which the last is nowhere, and none.
    pub const FILES: usize = 5;

    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() {
            memory.into()
        } else {
            std::env::temp_dir()
        };
        let directory = base.join(format!("distlock-fuzz-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a place");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("a place");
        // SAFETY: there is no other thread, and the handlers are what they should be.
        unsafe {
            std::env::set_var("DISTLOCK_DIR", directory.join("local"));
            std::env::set_var("DISTLOCK_STATE_DIR", directory.join("state"));
            libc::signal(libc::SIGIO, on_signal as *const () as usize);
            libc::atexit(remove);
        }
        // What a lease guards is held for good where the silent are presumed gone.
        let group = |name: &str, failure: &str, lease: &str| {
            let path = directory.join(name);
            let socket = directory.join(format!("{name}.socket"));
            let text = format!(
                "lease = \"{lease}\"\nfailure = \"{failure}\"\n[group]\nname = \"{name}\"\n[[member]]\nid = 1\n\
                 address = \"unix:{}\"\n[[lock]]\nname = \"pool\"\npermits = 2\n",
                socket.display()
            );
            fs::write(&path, text).expect("a file");
            text_of(&path)
        };
        // To found a group takes seconds: once, under a short lease, for all inputs.
        group("quorum", "quorum", "100ms");
        found(&directory);
        Self {
            quorum: group("quorum", "quorum", "60s"),
            presuming: group("presuming", "presume-failed", "100ms"),
            nowhere: c"/nowhere/at/all".into(),
            null_device: c"/dev/null".into(),
            state: text_of(&directory.join("state")),
            names: names(),
            directory,
        }
    }

    /// Nothing of the last input is left.
    pub fn clear(&self) {
        for entry in ["local", "state", "fences"] {
            let _ = fs::remove_dir_all(self.directory.join(entry));
        }
        fs::create_dir(self.directory.join("fences")).expect("a place");
        let state = self.directory.join("state/quorum-1");
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&state)
            .expect("a place");
        fs::copy(self.directory.join("founded"), state.join("state")).expect("the founded state");
    }

    /// Those of the one member of a group.
    pub fn options(&self, group: Group) -> Options {
        let config = match group {
            Group::Presuming => &self.presuming,
            Group::Quorum | Group::Local => &self.quorum,
        };
        Options {
            size: size_of::<Options>(),
            config_path: config.as_ptr(),
            id: 1,
            socket_path: ptr::null(),
            state_dir: self.state.as_ptr(),
            flags: 0,
            at: ptr::null(),
        }
    }

    /// Paths that lead nowhere.
    pub fn nonsense(&self, x: u8) -> Nonsense {
        let pick = |bits: u8, some: &CStr| match bits & 1 {
            0 => ptr::null(),
            _ => some.as_ptr(),
        };
        let config = if x & 8 == 0 {
            &self.nowhere
        } else {
            &self.null_device
        };
        Nonsense {
            config: pick(x, config),
            socket: pick(x >> 1, &self.nowhere),
            state: pick(x >> 2, &self.state),
        }
    }

    /// A name: now and then none.
    pub fn name(&self, y: u8) -> Option<&CStr> {
        self.names
            .get(usize::from(y) % (self.names.len() + 1))
            .map(CString::as_c_str)
    }

    /// Where fences are kept.
    pub fn file(&self, which: usize) -> Option<CString> {
        match which {
            0..3 => Some(text_of(&self.directory.join(format!("fences/{which}")))),
            3 => Some(self.nowhere.clone()),
            _ => None,
        }
    }

    /// Writes something else there; where, if anywhere.
    pub fn damage(&self, which: usize, with: u8) -> Option<usize> {
        if which >= 3 {
            return None;
        }
        let junk = vec![with; usize::from(with) % 64];
        fs::write(self.directory.join(format!("fences/{which}")), junk).expect("a file");
        Some(which)
    }
}

/// What names can be like.
fn names() -> Vec<CString> {
    let text = |bytes: Vec<u8>| CString::new(bytes).expect("without NUL");
    vec![
        c"a".into(),
        c"a".into(),
        c"b".into(),
        c"pool".into(),
        text(vec![b'x'; 255]),
        text(vec![b'y'; 256]),
        c"".into(),
        text(b"\xff/..\n%s ".to_vec()),
        c"..".into(),
        text((1..=255).collect()),
    ]
}

fn text_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("without NUL")
}

pub fn count_descriptors() -> usize {
    fs::read_dir("/proc/self/fd")
        .expect("this is Linux")
        .count()
}

extern "C" fn on_signal(_: libc::c_int) {}

extern "C" fn remove() {
    let _ = fs::remove_dir_all(&PLACES.directory);
}

/// Leaves the state of the quorum group's one member, which has ended in order, as `founded`.
fn found(directory: &Path) {
    let config = distlock::Config::load(directory.join("quorum")).expect("it is right");
    let node = config.node(1).expect("there is one");
    let agent = distlock::Agent::from_config(node).expect("it starts");
    let lock = distlock::Agent::mutex(&agent, "founding").expect("it is there");
    drop(distlock::DistMutex::lock(&lock).expect("it is founded"));
    agent.close();
    let state = directory.join("state/quorum-1/state");
    fs::copy(state, directory.join("founded")).expect("the founded state");
}
