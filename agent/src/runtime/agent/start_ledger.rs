//! How an agent starts whose locks are kept in a store.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::iter;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mio::{Poll, Registry};

use crate::protocol::ledger::{Ledger, LedgerConfig, Store};
use crate::protocol::{Algorithm, LockName, LockSpec, NodeId, Settings};
use crate::runtime::agent::event_loop::{EventLoop, Files, SERVICE};
use crate::runtime::agent::start::{chance, host_name, system};
use crate::runtime::agent::start_error::StartError;
use crate::runtime::api::audit::Auditor;
use crate::runtime::clients::Service;
use crate::runtime::clients::endpoint::Endpoint;
use crate::runtime::clients::lifeline::{Former, LifelineDir};
use crate::runtime::disk::state_dir::{StateDir, StateOwner};
use crate::runtime::disk::writer::Disk;
use crate::runtime::observe::watchdog::{Watchdog, WatchdogTimer};
use crate::runtime::os::clock;
use crate::runtime::os::fork::ForkStamp;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::shared::arbiter::Arbiter;
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::group_status::Identity;
use crate::runtime::shared::store::StoreSide;
use crate::runtime::shared::wakeup::{TRANSPORT, Wakeup};

/// How often an agent looks for sessions that ended without a word. Any agent of the group will do.
const COLLECT_EVERY: Duration = Duration::from_secs(600);

/// What an agent is started with whose locks are kept in a store.
pub struct LedgerOptions {
    /// The client that speaks the store's language.
    pub store: Box<dyn Store>,
    /// Where the store is, for messages and for the status.
    pub at: String,
    /// The group, whose records are below `distlock/GROUP/`.
    pub group: String,
    /// How long the agent may act after a renewal of its session was sent that the store has done.
    pub lease: Duration,
    /// After a session ended its locks stay closed for so much longer, for resources that cannot check
    /// fences (Burrows 2006, section 2.4).
    pub lock_delay: Duration,
    /// How many permits the listed locks have. Others have as many as their callers say.
    pub permits: BTreeMap<LockName, NonZeroU32>,
    /// Whether a store is refused that may forget what it has acknowledged.
    pub requires_keeping: bool,
    /// Where local programs are served, if they are.
    pub socket: Option<Endpoint>,
    /// Where this agent keeps what its clients' commands have open, if it serves any. Created if it does
    /// not exist.
    pub state_dir: PathBuf,
    /// What is to be done in the event loop again and again while it is well.
    pub watchdog: Option<Watchdog>,
    /// Is told of each grant and how it ends, for an audit, if there is one.
    pub auditor: Option<Auditor>,
    /// Whether the store and all clients are told callers' whole command lines, and not the programs'
    /// names alone.
    pub command_lines: bool,
}

impl fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerOptions")
            .field("at", &self.at)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// All that such an agent is, but for who runs its loop, for which `wakeup` is made.
pub(super) fn prepare(
    options: LedgerOptions,
    wakeup: impl FnOnce(&Registry) -> io::Result<Wakeup>,
) -> Result<EventLoop, StartError> {
    let me = NodeId::new(1).expect("one is an id");
    let settings = settings(&options);
    let host = host_name();
    let poll = Poll::new().map_err(system("open an epoll instance"))?;
    let wakeup = wakeup(poll.registry()).map_err(system("open a timer"))?;
    let socket_set = SocketSet::of(iter::empty(), poll.registry(), TRANSPORT)
        .map_err(system("wait for the store's connections"))?;
    let (service, former, state) = match &options.socket {
        None => (None, None, None),
        Some(endpoint) => {
            let dir = &options.state_dir;
            let owner = StateOwner::here(&options.group, me, options.at.clone());
            let (state, _) = StateDir::open(dir, owner)?;
            let (lifelines, left) = LifelineDir::open(dir)
                .map_err(system("look for commands of this agent's last incarnation"))?;
            let former = Former::new(left, options.lease);
            let service = Service::open(endpoint, lifelines, poll.registry(), SERVICE)?;
            (Some(service), former, Some(state))
        }
    };
    let stamp = ForkStamp::new()
        .map_err(io::Error::from)
        .map_err(system("mark this process"))?;
    let config = LedgerConfig {
        group: options.group,
        lease: options.lease,
        lock_delay: options.lock_delay,
        host: host.clone(),
        permits: options.permits,
        collect_every: Some(COLLECT_EVERY),
        seed: chance()?,
    };
    let ledger = Ledger::new(config, clock::now());
    let at = options.at.into();
    let side = StoreSide::new(ledger, options.store, at, options.requires_keeping);
    let identity = Identity {
        me,
        file_voters: None,
        settings,
        is_in_store: true,
        host,
        command_lines: options.command_lines,
        place: place(state.as_ref()).map_err(system("copy a descriptor"))?,
    };
    let arbiter = Arbiter::Store(Box::new(side));
    let shared = Shared::new(arbiter, wakeup, socket_set, stamp, identity);
    shared.begin_to_resolve();
    let files = Files {
        disk: Disk::Unused(state),
        keys: None,
    };
    let watchdog_timer = options.watchdog.map(WatchdogTimer::new);
    let mut event_loop = EventLoop::new(
        Arc::clone(&shared),
        poll,
        files,
        service,
        watchdog_timer,
        None,
    );
    let mut core = shared.lock_core();
    if let Some(former) = former {
        core.hold_back();
        event_loop.wait_for(former);
    }
    core.begin(None, options.auditor);
    core.finish();
    Ok(event_loop)
}

fn settings(options: &LedgerOptions) -> Settings {
    let spec = |&permits: &NonZeroU32| match permits {
        NonZeroU32::MIN => LockSpec::exclusive(Algorithm::Manager),
        _ => LockSpec::counting(permits),
    };
    let locks = options.permits.iter();
    Settings {
        lease: options.lease,
        lock_delay: options.lock_delay,
        locks: locks.map(|(name, it)| (name.clone(), spec(it))).collect(),
        ..Settings::new(options.group.clone())
    }
}

/// What commands inherit that are run under a lock. Nobody waits for its copies where no directory is this
/// agent's: the command ends with its lease.
fn place(state: Option<&StateDir>) -> io::Result<OwnedFd> {
    match state {
        Some(state) => state.try_clone_lock(),
        None => Ok(File::open("/dev/null")?.into()),
    }
}

#[cfg(test)]
mod tests;
