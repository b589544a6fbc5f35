//! What is behind a `distlock_agent`.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::num::NonZeroU32;
use std::sync::Arc;

use distlock_agent::protocol::LockName;
use distlock_agent::runtime::sync;
use nix::errno::Errno;

use super::code;
use crate::discovery::{GroupChoice, GroupOptions};
use crate::error::HandleError;
use crate::handle::LockHandle;
use crate::options::LockOptions;
use crate::thread::ThreadId;
use crate::{Driven, Guard};

/// An agent, with the permits that its process holds.
pub(super) struct Agent {
    agent: crate::Agent,
    /// By which the program drives it, if it does.
    driven: Option<Driven>,
    /// By semaphore, since whoever uses the same semaphore of the same agent may give them back.
    pub(super) permits: sync::Mutex<BTreeMap<LockName, Vec<Permit>>>,
}

/// A held permit.
pub(super) struct Permit {
    /// By which handle it was taken.
    pub(super) sem: u64,
    pub(super) thread: ThreadId,
    pub(super) guard: Guard,
}

impl Agent {
    pub(super) fn open(options: &GroupOptions) -> Result<Arc<Self>, Errno> {
        let agent = options.find().and_then(|group| group.open());
        Ok(Self::new(agent.map_err(|error| code::open(&error))?, None))
    }

    /// Without a thread: a member only, since the others have nothing to drive.
    pub(super) fn open_driven(options: &GroupOptions) -> Result<Arc<Self>, Errno> {
        let group = options.find().map_err(|error| code::open(&error))?;
        let GroupChoice::Member(member) = group else {
            return Err(Errno::EINVAL);
        };
        let driven = member.load().and_then(Driven::from_config);
        let driven = driven.map_err(|error| code::open(&error))?;
        Ok(Self::new(driven.agent().clone(), Some(driven)))
    }

    fn new(agent: crate::Agent, driven: Option<Driven>) -> Arc<Self> {
        Arc::new(Self {
            agent,
            driven,
            permits: sync::Mutex::default(),
        })
    }

    /// What drives it; `EINVAL` if it has a thread, or needs none.
    pub(super) fn driven(&self) -> Result<&Driven, Errno> {
        self.driven.as_ref().ok_or(Errno::EINVAL)
    }

    /// The lock `name`; `permits` is `None` if the configuration says it.
    pub(super) fn lock(
        &self,
        name: &CStr,
        permits: Option<NonZeroU32>,
    ) -> Result<LockHandle, Errno> {
        let handle = self
            .agent
            .handle(name.to_bytes(), permits, &LockOptions::new());
        handle.map_err(|error: HandleError| code::handle(&error))
    }

    /// How many hold the lock `name`, in the whole group.
    pub(super) fn count_holders(&self, name: &LockName) -> Result<usize, Errno> {
        let status = self.agent.status().map_err(|error| code::status(&error))?;
        let name = name.to_string();
        let lock = status.locks.iter().find(|lock| lock.name == name);
        Ok(lock.map_or(0, |lock| lock.holders.len()))
    }

    pub(super) fn close(&self) {
        self.agent.close();
    }
}
