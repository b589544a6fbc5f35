//! Reads `distlock_options`, whose size depends on the version that the program was built with.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::{align_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

use distlock_agent::protocol::NodeId;
use nix::errno::Errno;

use super::arguments::text;
use crate::discovery::GroupOptions;

/// A flag of `distlock_options`: the local group is meant, the processes of this user on this host,
/// whatever the environment says and whatever group this host has.
pub const DISTLOCK_LOCAL: u32 = 1;

/// Which group to take part in, and how. Set all of it to zero, then `size` to
/// `sizeof(distlock_options)`, then what is wanted:
///
/// - nothing: the group that the environment or this host says, as with no options at all;
/// - `flags = DISTLOCK_LOCAL`: the local group;
/// - `config_path` and `id`, and `state_dir` if wanted: a member of the configured group, with an
///   agent in a thread of this process;
/// - `socket_path`: a client of the agent that serves this socket (`distlock agent`);
/// - `at`: the group at that place, as `distlock run --at` takes it: a store's, like
///   `etcd://10.0.0.1,10.0.0.2?group=shop` or `postgresql://app@db/shop`.
///
/// Anything else is -EINVAL. The strings are not needed any more when the function returns.
#[repr(C)]
pub struct distlock_options {
    /// `sizeof(distlock_options)`, so that later versions can add members: those that a program
    /// does not know are zero, and those that the library does not know have to be.
    pub size: usize,
    /// The group's configuration file, see distlock.toml(5).
    pub config_path: *const c_char,
    /// This member's number in it, 1 to 65535.
    pub id: u32,
    /// The Unix stream socket of this host's agent.
    pub socket_path: *const c_char,
    /// Where the member keeps what must outlive the process; NULL is the default place.
    pub state_dir: *const c_char,
    /// `DISTLOCK_LOCAL`, or 0.
    pub flags: u32,
    /// Where the group is, in UTF-8.
    pub at: *const c_char,
}

/// More than any version will ever have: a larger size is something else.
const MAX_SIZE: usize = 4096;

/// What `options` say.
///
/// # Safety
/// `options` is NULL, or a `distlock_options` of this or another version, with its size in it; it
/// and its strings live and do not change during the call.
pub(super) unsafe fn read(options: *const distlock_options) -> Result<GroupOptions, Errno> {
    if options.is_null() {
        return Ok(GroupOptions::new());
    }
    // SAFETY: the caller's promise; all versions begin with the size.
    let size = unsafe { (&raw const (*options).size).read() };
    // All members end where something of this alignment could begin, so that no size cuts one.
    if !size.is_multiple_of(align_of::<distlock_options>())
        || !(size_of::<usize>()..=MAX_SIZE).contains(&size)
    {
        return Err(Errno::EINVAL);
    }
    let known = size.min(size_of::<distlock_options>());
    // SAFETY: the caller's promise: so many bytes are there. What is unknown is of a later version,
    // all of which is set to zero before it is used.
    let unknown = unsafe { slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    let mut ours = none();
    // SAFETY: `known` is at most the size of `ours`, and ends between two members.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut ours).cast(), known) };
    // SAFETY: the caller's promise.
    unsafe { sort(&ours) }
}

/// # Safety
/// Its strings are strings or NULL.
unsafe fn sort(options: &distlock_options) -> Result<GroupOptions, Errno> {
    // SAFETY: the caller's promise.
    let [config, socket, state_dir, at] = unsafe {
        [
            text(options.config_path),
            text(options.socket_path),
            text(options.state_dir),
            text(options.at),
        ]
    };
    let is_local = options.flags & DISTLOCK_LOCAL != 0;
    if options.flags & !DISTLOCK_LOCAL != 0 {
        return Err(Errno::EINVAL);
    }
    let found = GroupOptions::new();
    if let Some(at) = at {
        let is_alone = config.is_none() && socket.is_none() && state_dir.is_none();
        let at = at.to_str().map_err(|_| Errno::EINVAL)?;
        return if is_alone && !is_local && options.id == 0 {
            Ok(found.at(at))
        } else {
            Err(Errno::EINVAL)
        };
    }
    match (config, options.id, socket) {
        (None, 0, None) if state_dir.is_none() && is_local => Ok(found.local()),
        (None, 0, None) if state_dir.is_none() => Ok(found),
        (None, 0, Some(socket)) if state_dir.is_none() && !is_local => {
            Ok(found.socket(path(socket)))
        }
        (Some(config), id @ 1.., None) if !is_local => {
            let id = u16::try_from(id).ok().and_then(NodeId::new);
            let id = id.ok_or(Errno::EINVAL)?;
            let member = found.config(path(config)).id(id);
            Ok(match state_dir {
                Some(state_dir) => member.state_dir(path(state_dir)),
                None => member,
            })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Options that say nothing.
const fn none() -> distlock_options {
    distlock_options {
        size: 0,
        config_path: ptr::null(),
        id: 0,
        socket_path: ptr::null(),
        state_dir: ptr::null(),
        flags: 0,
        at: ptr::null(),
    }
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of a later version.
    #[repr(C)]
    struct Later {
        now: distlock_options,
        more: usize,
    }

    fn options() -> distlock_options {
        distlock_options {
            size: size_of::<distlock_options>(),
            ..none()
        }
    }

    fn read_whole(options: &distlock_options) -> Result<GroupOptions, Errno> {
        // SAFETY: a structure of this version, or what its size says.
        unsafe { read(options) }
    }

    #[test]
    fn one_way_into_a_group() {
        let here = c"/here".as_ptr();
        let with = |config_path, id, socket_path, state_dir| {
            read_whole(&distlock_options {
                config_path,
                id,
                socket_path,
                state_dir,
                ..options()
            })
        };
        let no = ptr::null();
        let none = GroupOptions::new;
        let id = |id| NodeId::new(id).unwrap();
        assert_eq!(with(no, 0, no, no), Ok(none()));
        assert_eq!(with(here, 1, no, no), Ok(none().config("/here").id(id(1))));
        assert_eq!(
            with(here, 65535, no, here),
            Ok(none().config("/here").id(id(65535)).state_dir("/here"))
        );
        assert_eq!(with(no, 0, here, no), Ok(none().socket("/here")));
        for (config, id, socket, state) in [
            (here, 0, no, no),
            (here, 65536, no, no),
            (no, 1, no, no),
            (no, 0, no, here),
            (here, 1, here, no),
            (no, 0, here, here),
        ] {
            assert_eq!(with(config, id, socket, state), Err(Errno::EINVAL));
            let local = distlock_options {
                config_path: config,
                id,
                socket_path: socket,
                state_dir: state,
                flags: DISTLOCK_LOCAL,
                ..options()
            };
            assert_eq!(read_whole(&local), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn flags_and_places_are_read_and_others_are_refused() {
        let flags = |flags| read_whole(&distlock_options { flags, ..options() });
        assert_eq!(flags(DISTLOCK_LOCAL), Ok(GroupOptions::new().local()));
        assert_eq!(flags(DISTLOCK_LOCAL | 2), Err(Errno::EINVAL));
        let at = c"etcd://localhost".as_ptr();
        let store = distlock_options { at, ..options() };
        let place = GroupOptions::new().at("etcd://localhost");
        assert_eq!(read_whole(&store), Ok(place));
        // Two groups at once, and what is no text.
        let (flags, id) = (DISTLOCK_LOCAL, 0);
        let both = distlock_options {
            flags,
            id,
            at,
            ..options()
        };
        assert_eq!(read_whole(&both), Err(Errno::EINVAL));
        let at = c"\xff".as_ptr();
        let none = distlock_options { at, ..options() };
        assert_eq!(read_whole(&none), Err(Errno::EINVAL));
        // A program of before does not know these members.
        let before = distlock_options {
            size: std::mem::offset_of!(distlock_options, flags),
            flags: DISTLOCK_LOCAL,
            at,
            ..options()
        };
        assert_eq!(read_whole(&before), Ok(GroupOptions::new()));
    }

    #[test]
    fn other_versions_have_other_sizes() {
        let socket_path = c"/here".as_ptr();
        let word = size_of::<usize>();
        // An earlier version knew less.
        let earlier = distlock_options {
            size: word,
            socket_path,
            ..options()
        };
        assert_eq!(read_whole(&earlier), Ok(GroupOptions::new()));
        for size in [0, word - 1, word + 1, 8192] {
            assert_eq!(
                read_whole(&distlock_options { size, ..options() }),
                Err(Errno::EINVAL)
            );
        }
        // A later one may know more, but not ask for it.
        let later = |more| {
            let size = size_of::<Later>();
            let now = distlock_options {
                size,
                socket_path,
                ..options()
            };
            let later = Later { now, more };
            // SAFETY: its size is in it.
            unsafe { read((&raw const later).cast()) }.map(|_| ())
        };
        assert_eq!(later(0), Ok(()));
        assert_eq!(later(1), Err(Errno::EINVAL));
    }
}
