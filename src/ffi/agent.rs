//! What is behind a `distlock_agent`.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use distlock_agent::protocol::LockName;
use nix::errno::Errno;

use super::code;
use crate::agent::LockShared;
use crate::backend::Ask;
use crate::error::{HandleError, OpenError};
use crate::thread::ThreadId;
use crate::{Config, Guard};

/// How a C program wants to take part in a group.
pub(super) enum Part<'a> {
    /// In the local group.
    Local,
    /// As a member.
    Member {
        config: &'a CStr,
        id: u16,
        state_dir: Option<&'a CStr>,
    },
    /// Through the host's agent.
    Client { socket: &'a CStr },
}

/// An agent, with the permits that its process holds.
pub(super) struct Agent {
    agent: crate::Agent,
    /// By semaphore, since whoever uses the same semaphore of the same agent may give them back.
    pub(super) permits: parking_lot::Mutex<BTreeMap<LockName, Vec<Permit>>>,
}

/// A held permit.
pub(super) struct Permit {
    /// By which handle it was taken.
    pub(super) sem: u64,
    pub(super) thread: ThreadId,
    pub(super) guard: Guard,
}

impl Agent {
    pub(super) fn open(part: &Part<'_>) -> Result<Arc<Self>, Errno> {
        let agent = Self::open_part(part).map_err(|error| code::open(&error))?;
        Ok(Arc::new(Self {
            agent,
            permits: parking_lot::Mutex::default(),
        }))
    }

    fn open_part(part: &Part<'_>) -> Result<crate::Agent, OpenError> {
        match part {
            Part::Local => crate::Agent::local(),
            Part::Client { socket } => crate::Agent::connect(path(socket)),
            Part::Member {
                config,
                id,
                state_dir,
            } => {
                let mut node = Config::load(path(config))?.node(*id)?;
                if let Some(directory) = state_dir {
                    node = node.with_state_dir(path(directory));
                }
                crate::Agent::from_config(node)
            }
        }
    }

    /// The lock `name`; `permits` is `None` if the configuration says it.
    pub(super) fn lock(
        &self,
        name: &CStr,
        permits: Option<NonZeroU32>,
    ) -> Result<Arc<LockShared>, Errno> {
        let ask = Ask {
            algorithm: None,
            permits,
        };
        let refused = |error: HandleError| code::handle(&error);
        self.agent.handle(name.to_bytes(), ask).map_err(refused)
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

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}
