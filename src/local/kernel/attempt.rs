//! One attempt to enter: takes a permit that is free, and writes down who has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use distlock_agent::protocol::Mode;
use distlock_agent::runtime::clock;

use super::hold::KernelHold;
use super::{KernelLock, MAX_REPLACEMENTS};
use crate::backend::Request;
use crate::error::LockError;
use crate::local::file::{Found, LockFile};
use crate::local::record::Record;
use crate::previous_owner::PreviousOwner;

/// How long an attempt that may not wait bears with the removal of the file, which takes
/// microseconds unless the remover is stopped.
const MAX_REMOVAL: Duration = Duration::from_millis(20);

impl KernelLock {
    /// Enters if there is a permit now.
    pub(super) fn attempt(
        self: &Arc<Self>,
        request: &Request,
    ) -> Result<Option<KernelHold>, LockError> {
        let mut file = None;
        let give_up = clock::now() + MAX_REMOVAL;
        loop {
            if let Some(hold) = self.look(&mut file, request)? {
                return Ok(Some(hold));
            }
            let is_retiring = match &file {
                Some(file) => file.is_retiring().map_err(|error| self.failed(error))?,
                None => false,
            };
            if !is_retiring || clock::now() >= give_up {
                self.keep(file);
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }

    /// Looks whether there is a permit, and enters. `file` is the open file, kept between looks.
    pub(super) fn look(
        self: &Arc<Self>,
        file: &mut Option<LockFile>,
        request: &Request,
    ) -> Result<Option<KernelHold>, LockError> {
        for _ in 0..MAX_REPLACEMENTS {
            let open = match file.take().or_else(|| self.spare.lock().take()) {
                Some(open) => open,
                None => self.open()?,
            };
            let start = self.first_permit.fetch_add(1, Ordering::Relaxed);
            let directory = &self.group.directory;
            let found = match request.wish.mode {
                Mode::Exclusive => open.try_permit(directory, start),
                Mode::Shared => open.try_share(directory, start),
            };
            match found.map_err(|error| self.failed(error))? {
                Found::Permit(permit, last) => {
                    return self.enter(open, (permit, last), request).map(Some);
                }
                Found::Taken => {
                    *file = Some(open);
                    return Ok(None);
                }
                Found::Replaced => {}
            }
        }
        Err(self.is_replaced_all_the_time())
    }

    /// With the permit locked: takes the fence and writes the record. An error gives the permit
    /// back, since it drops the file.
    fn enter(
        self: &Arc<Self>,
        mut file: LockFile,
        (permit, last): (u32, Option<Record>),
        request: &Request,
    ) -> Result<KernelHold, LockError> {
        let has_waited = file.is_marked();
        file.unmark().map_err(|error| self.failed(error))?;
        let fence = self
            .group
            .next_fence(last.as_ref().map_or(0, |last| last.fence))?;
        let record = Record {
            fence: fence.as_u64(),
            is_inside: true,
            pid: self.group.pid,
            since: SystemTime::now(),
            process: None,
            command: request.command.as_deref().unwrap_or_default().to_owned(),
            inherited: None,
        };
        file.write_record(permit, &record)
            .map_err(|error| self.failed(error))?;
        if has_waited && file.is_reader(permit) {
            // One was woken, and all who would share it can come in.
            self.bell(|bell| bell.ring_all())?;
        }
        let previous = last.map_or(PreviousOwner::Clean, |last| last.as_previous_owner());
        Ok(KernelHold {
            lock: Arc::clone(self),
            file,
            permit,
            fence,
            previous,
            lifeline: None,
        })
    }
}
