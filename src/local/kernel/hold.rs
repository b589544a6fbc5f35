//! A held permit, and its release.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use distlock_agent::protocol::{Fence, Release};
use distlock_agent::runtime::fifo::Fifo;
use distlock_agent::runtime::{Announcer, Sighting};

use super::KernelLock;
use crate::GuardState;
use crate::backend::Hold;
use crate::error::UnlockError;
use crate::local::file::LockFile;
use crate::previous_owner::PreviousOwner;

/// A held permit.
pub(super) struct KernelHold {
    pub(super) lock: Arc<KernelLock>,
    pub(super) file: LockFile,
    pub(super) permit: u32,
    pub(super) fence: Fence,
    pub(super) previous: PreviousOwner,
    /// By which it is seen whether the commands are gone that have inherited its other end.
    pub(super) lifeline: Option<Fifo>,
}

impl Hold for KernelHold {
    fn fence(&self) -> Option<Fence> {
        Some(self.fence)
    }

    fn previous_owner(&self) -> PreviousOwner {
        self.previous
    }

    fn state(&self) -> GuardState {
        GuardState::Valid
    }

    fn grace(&self) -> Option<Duration> {
        None
    }

    fn release(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        let Self {
            lock,
            file,
            permit,
            previous,
            lifeline,
            ..
        } = *self;
        // What says that somebody is inside stays, and tells the next one.
        let is_told = match how {
            Release::Abandoned => true,
            Release::Unused => previous == PreviousOwner::Abandoned,
            Release::Given => false,
        };
        let noted = if is_told {
            file.look_at_length().map(drop)
        } else {
            file.write_left(permit)
        };
        if let Some(lifeline) = lifeline {
            // What is left behind now, the next one finds, and waits for it or removes it.
            let _ = file.end_lifeline(&lock.group.directory, permit, &lifeline);
        }
        let released = file.release(permit);
        // Afterwards: who waits from now on looks once more before it sleeps.
        let is_awaited = file.may_be_awaited().unwrap_or(true);
        if released.is_ok() {
            lock.keep(Some(file));
        }
        lock.leave_to_waiters(is_awaited);
        noted.and(released).map_err(|source| UnlockError::Io {
            what: format!("the lock {} was not unlocked in order", lock.name),
            source,
        })
    }

    fn forget(self: Box<Self>) {
        // Dropping closes the child's copy of the descriptor, and unlocks nothing.
    }

    fn set_command_pid(&self, pid: u32) {
        // `status` does without, and so does who looks whether the command is left: there is the
        // lifeline.
        let _ = self.file.write_process(self.permit, Sighting::now(pid));
    }

    fn announcer(&self) -> io::Result<Option<Announcer>> {
        self.file.announcer(self.permit).map(Some)
    }

    fn inheritable_fd(&mut self) -> io::Result<Option<OwnedFd>> {
        let directory = &self.lock.group.directory;
        let inherited = match &mut self.lifeline {
            Some(lifeline) => Ok(lifeline),
            none => (self.file.make_lifeline(directory, self.permit))
                .map(|lifeline| none.insert(lifeline)),
        };
        inherited
            .and_then(|lifeline| self.file.open_lifeline(directory, self.permit, lifeline))
            .map(Some)
            .map_err(|error| {
                let what = format!("a FIFO in {}: {error}", directory.path().display());
                io::Error::new(error.kind(), what)
            })
    }
}
