//! The capability to signal other users' processes, laid down for a moment.

use std::io;

use nix::errno::Errno;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities, in two words.
const VERSION: u32 = 0x2008_0522;
const CAP_KILL: u32 = 5;

#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    thread: libc::c_int,
}

/// One word of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// While it is there, the thread that made it may signal only whom its user may.
#[derive(Debug)]
pub(crate) struct WithoutKill {
    had: bool,
}

impl WithoutKill {
    /// # Errors
    /// If the system does not tell what this thread may do, or does not let it do without.
    pub(crate) fn new() -> io::Result<Self> {
        let mut sets = get()?;
        let had = sets[0].effective & (1 << CAP_KILL) != 0;
        if had {
            sets[0].effective &= !(1 << CAP_KILL);
            set(sets)?;
        }
        Ok(Self { had })
    }
}

impl Drop for WithoutKill {
    fn drop(&mut self) {
        if !self.had {
            return;
        }
        let again = get().and_then(|mut sets| {
            sets[0].effective |= 1 << CAP_KILL;
            set(sets)
        });
        if let Err(error) = again {
            // What is permitted may be made effective, so this does not happen.
            tracing::error!(
                event = "capability-lost",
                "this agent has lost CAP_KILL: {error}; restart it"
            );
        }
    }
}

fn get() -> io::Result<[Sets; 2]> {
    let mut header = Header {
        version: VERSION,
        thread: 0,
    };
    let mut sets = [Sets::default(); 2];
    #[expect(unsafe_code, reason = "neither libc nor nix has capget")]
    // SAFETY: both pointers are to what lives until the call is over, as long as the version says.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    Errno::result(got)?;
    Ok(sets)
}

fn set(sets: [Sets; 2]) -> io::Result<()> {
    let mut header = Header {
        version: VERSION,
        thread: 0,
    };
    #[expect(unsafe_code, reason = "neither libc nor nix has capset")]
    // SAFETY: as above; it changes what this thread may do, and no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(done)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_again_afterwards() {
        let effective = || get().unwrap()[0].effective;
        let before = effective();
        let without = WithoutKill::new().unwrap();
        assert_eq!(effective(), before & !(1 << CAP_KILL));
        drop(without);
        assert_eq!(effective(), before);
    }
}
