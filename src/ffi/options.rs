//! Reads `distlock_options`, whose size depends on the version that the program was built with.

use std::ffi::CStr;
use std::mem::{align_of, size_of};
use std::{ptr, slice};

use nix::errno::Errno;

use super::agent::{Member, Part};
use super::{distlock_options, text};

/// More than any version will ever have: a larger size is something else.
const MAX_SIZE: usize = 4096;

/// What `options` say.
///
/// # Safety
/// `options` is NULL, or a `distlock_options` of this or another version, with its size in it; it
/// and its strings live and do not change during `'a`.
pub(super) unsafe fn read<'a>(options: *const distlock_options) -> Result<Part<'a>, Errno> {
    if options.is_null() {
        return Ok(Part::Local);
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
    let mut ours = distlock_options {
        size: 0,
        config_path: ptr::null(),
        id: 0,
        socket_path: ptr::null(),
        state_dir: ptr::null(),
    };
    // SAFETY: `known` is at most the size of `ours`, and ends between two members.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut ours).cast(), known) };
    // SAFETY: the caller's promise.
    unsafe {
        sort(
            text(ours.config_path),
            ours.id,
            text(ours.socket_path),
            text(ours.state_dir),
        )
    }
}

fn sort<'a>(
    config: Option<&'a CStr>,
    id: u32,
    socket: Option<&'a CStr>,
    state_dir: Option<&'a CStr>,
) -> Result<Part<'a>, Errno> {
    match (config, id, socket) {
        (None, 0, None) if state_dir.is_none() => Ok(Part::Local),
        (None, 0, Some(socket)) if state_dir.is_none() => Ok(Part::Client { socket }),
        (Some(config), 1.., None) => Ok(Part::Member(Member {
            config,
            id: u16::try_from(id).map_err(|_| Errno::EINVAL)?,
            state_dir,
        })),
        _ => Err(Errno::EINVAL),
    }
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
            config_path: ptr::null(),
            id: 0,
            socket_path: ptr::null(),
            state_dir: ptr::null(),
        }
    }

    fn kind(options: &distlock_options) -> Result<&'static str, Errno> {
        // SAFETY: a structure of this version, or what its size says.
        let part = unsafe { read(options) }?;
        Ok(match part {
            Part::Local => "local",
            Part::Member(_) => "member",
            Part::Client { .. } => "client",
        })
    }

    #[test]
    fn one_way_into_a_group() {
        let here = c"/here".as_ptr();
        let with = |config_path, id, socket_path, state_dir| {
            kind(&distlock_options {
                config_path,
                id,
                socket_path,
                state_dir,
                ..options()
            })
        };
        let no = ptr::null();
        assert_eq!(with(no, 0, no, no), Ok("local"));
        assert_eq!(with(here, 1, no, no), Ok("member"));
        assert_eq!(with(here, 65535, no, here), Ok("member"));
        assert_eq!(with(no, 0, here, no), Ok("client"));
        for (config, id, socket, state) in [
            (here, 0, no, no),
            (here, 65536, no, no),
            (no, 1, no, no),
            (no, 0, no, here),
            (here, 1, here, no),
            (no, 0, here, here),
        ] {
            assert_eq!(with(config, id, socket, state), Err(Errno::EINVAL));
        }
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
        assert_eq!(kind(&earlier), Ok("local"));
        for size in [0, word - 1, word + 1, 8192] {
            assert_eq!(
                kind(&distlock_options { size, ..options() }),
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
