//! What the kernel and the C library have for the processes of one host.

use std::ffi::CString;
use std::fs::File;
use std::path::Path;

use super::Locks;
use crate::shared::LOCKS;

/// flock(2), of a file for each lock.
pub(super) struct Flock(Vec<File>);

impl Flock {
    pub(super) fn open(directory: &Path) -> Self {
        let open = |lock| {
            let path = directory.join(format!("lock-{lock}"));
            let file = File::options().append(true).create(true).open(path);
            file.expect("our own directory, and no more files than 1024")
        };
        Self((0..LOCKS).map(open).collect())
    }
}

impl Locks for Flock {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        // On Linux the standard library's is flock(2).
        self.0[lock].lock().expect("our own file");
        None
    }

    fn leave(&mut self, lock: usize) {
        self.0[lock].unlock().expect("it is held");
    }
}

/// Named semaphores of POSIX, of one permit each. That of a holder who is killed stays taken.
pub(super) struct Semaphores(Vec<*mut libc::sem_t>);

impl Semaphores {
    #[expect(unsafe_code, reason = "nothing but the C library has them")]
    pub(super) fn open(directory: &Path) -> Self {
        let open = |lock| {
            let name = semaphore_name(directory, lock);
            // SAFETY: the name ends with NUL, and the other arguments are as O_CREAT demands.
            let semaphore =
                unsafe { libc::sem_open(name.as_ptr(), libc::O_CREAT, 0o600 as libc::mode_t, 1) };
            assert!(semaphore != libc::SEM_FAILED, "no more semaphores");
            semaphore
        };
        Self((0..LOCKS).map(open).collect())
    }
}

impl Locks for Semaphores {
    #[expect(unsafe_code, reason = "nothing but the C library has them")]
    fn enter(&mut self, lock: usize) -> Option<u64> {
        // SAFETY: it was opened, and is never closed.
        let result = unsafe { libc::sem_wait(self.0[lock]) };
        assert_eq!(result, 0, "no signal has a handler here");
        None
    }

    #[expect(unsafe_code, reason = "nothing but the C library has them")]
    fn leave(&mut self, lock: usize) {
        // SAFETY: it was opened, and is never closed.
        let result = unsafe { libc::sem_post(self.0[lock]) };
        assert_eq!(result, 0, "it is held once");
    }
}

/// Removes their names: who has them open keeps them.
#[expect(unsafe_code, reason = "nothing but the C library has them")]
pub(super) fn unlink_semaphores(directory: &Path) {
    for lock in 0..LOCKS {
        let name = semaphore_name(directory, lock);
        // SAFETY: the name ends with NUL.
        let result = unsafe { libc::sem_unlink(name.as_ptr()) };
        assert_eq!(result, 0, "our own semaphore");
    }
}

/// The directory's name makes it one of this run.
fn semaphore_name(directory: &Path, lock: usize) -> CString {
    let run = directory.file_name().expect("it has a name").display();
    CString::new(format!("/distlock-compare-{run}-{lock}")).expect("no NUL")
}
