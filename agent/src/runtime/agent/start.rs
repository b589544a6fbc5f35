//! How an agent starts: everything is bound, opened and read before its loop runs.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use mio::{Poll, Registry};
use zeroize::Zeroizing;

use crate::protocol::lock::{violation_probability, votes_needed};
use crate::protocol::wire::GroupId;
use crate::protocol::{Boot, Failure, Node, NodeConfig, NodeId, Settings};
use crate::runtime::agent::event_loop::{EventLoop, Files, SERVICE};
use crate::runtime::agent::options::Options;
use crate::runtime::agent::start_error::StartError;
use crate::runtime::clients::Service;
use crate::runtime::clients::lifeline::{Former, LifelineDir};
use crate::runtime::disk::state_dir::{StateDir, StateError, StateOwner};
use crate::runtime::disk::writer::Disk;
use crate::runtime::net::address::Address;
use crate::runtime::net::aead;
use crate::runtime::net::aead::{KeyFile, KeyRing, Seals};
use crate::runtime::net::transport::Transport;
use crate::runtime::observe::trace;
use crate::runtime::observe::watchdog::WatchdogTimer;
use crate::runtime::os::clock;
use crate::runtime::os::fork::ForkStamp;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::shared::arbiter::{Arbiter, Members};
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::group_status::Identity;
use crate::runtime::shared::membership::Membership;
use crate::runtime::shared::wakeup::{TRANSPORT, Wakeup};

/// All that an agent is, but for who runs its loop, for which `wakeup` is made.
pub(super) fn prepare(
    options: Options,
    wakeup: impl FnOnce(&Registry) -> io::Result<Wakeup>,
) -> Result<EventLoop, StartError> {
    let Options {
        me,
        members,
        voters,
        voters_are_listed,
        cluster,
        settings,
        state_dir,
        socket,
        watchdog,
        trace,
        auditor,
        multicast,
        key_file,
        command_lines,
        faults,
    } = options;
    if !members.contains_key(&me) {
        return Err(StartError::NotAMember { me });
    }
    let keys = key_file.as_deref().map(KeyFile::open).transpose()?;
    let (key_file, seals) = match keys {
        Some((file, keys)) => (Some(file), Some(begin_to_seal(me, keys)?)),
        None => {
            warn_of_insecurity(&members);
            (None, None)
        }
    };
    let owner = StateOwner::here(&settings.group, me, members[&me].to_string());
    let (state, record) = StateDir::open(&state_dir, owner)?;
    let remembers = record
        .as_ref()
        .and_then(|record| record.affiliation.cluster_id());
    if let Some(cluster) = remembers.filter(|_| settings.failure != Failure::Quorum) {
        let path = state_dir;
        return Err(StateError::HasQuorum { path, cluster }.into());
    }
    let (lifelines, left) = LifelineDir::open(&state_dir)
        .map_err(system("look for commands of this agent's last incarnation"))?;
    let former = Former::new(left, settings.lease);
    let place = state
        .try_clone_lock()
        .map_err(system("copy a descriptor"))?;
    let group = GroupId::of(&settings.group);
    let multicast = multicast.map(|address| (group, address));
    let transport = Transport::bind(me, &members, multicast, seals, faults)?;
    let poll = Poll::new().map_err(system("open an epoll instance"))?;
    let wakeup = wakeup(poll.registry()).map_err(system("open a timer"))?;
    let socket_set = SocketSet::of(transport.sockets(), poll.registry(), TRANSPORT)
        .map_err(system("wait for the member's socket"))?;
    let service = socket
        .map(|endpoint| Service::open(&endpoint, lifelines, poll.registry(), SERVICE))
        .transpose()?;
    let stamp = ForkStamp::new()
        .map_err(io::Error::from)
        .map_err(system("mark this process"))?;

    let listed = voters.clone();
    let config = NodeConfig {
        me,
        members: members.keys().copied().collect(),
        voters,
        cluster,
        settings: settings.clone(),
    };
    if settings.failure == Failure::PresumeFailed {
        tracing::warn!(
            event = "presume-failed",
            "failure = \"presume-failed\": a member that is silent is presumed gone, so two can \
             hold a lock at once when one of them only stood still or was cut off, and there \
             are no fences; to be safe from that, leave the key out"
        );
    }
    warn_of_voting(&settings, members.len());
    let boot = Boot {
        record,
        wall: clock::wall(),
        seed: chance()?,
    };
    let node = Node::new(config, boot, clock::now());
    let host = host_name();
    let has_thread = matches!(wakeup, Wakeup::Thread(_));
    let incarnation = node.incarnation();
    let trace =
        trace.and_then(|dir| trace::open(&dir, me, &settings, &host, incarnation, has_thread));
    let (tracer, writer) = trace.unzip();
    let identity = Identity {
        me,
        file_voters: Some(listed).filter(|_| voters_are_listed),
        settings,
        is_in_store: false,
        host,
        command_lines,
        place,
    };
    let membership = Membership::new(members, key_file.is_some());
    let members = Members::new(node, transport, membership);
    let arbiter = Arbiter::Members(Box::new(members));
    let shared = Shared::new(arbiter, wakeup, socket_set, stamp, identity);
    let watchdog_timer = watchdog.map(WatchdogTimer::new);
    let mut event_loop = EventLoop::new(
        shared.clone(),
        poll,
        Files {
            disk: Disk::Here(state),
            keys: key_file,
        },
        service,
        watchdog_timer,
        writer,
    );
    let mut core = shared.lock_core();
    if let Some(former) = former {
        core.hold_back();
        event_loop.wait_for(former);
    }
    core.begin(tracer, auditor);
    core.expect_view();
    let record = core.take_persist();
    core.finish();
    // The first record is written here, so that a failure is the start's.
    event_loop.persist_first(record)?;
    event_loop.prepare()?;
    Ok(event_loop)
}

/// What this host is called.
pub(super) fn host_name() -> String {
    let name = nix::unistd::gethostname();
    name.map_or_else(
        |_| String::new(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// A number by chance.
pub(super) fn chance() -> Result<u64, StartError> {
    // The kernel's: what a process keeps for itself, as the standard library's `RandomState` does, a
    // forked child and its parent go on with alike.
    getrandom::u64()
        .map_err(io::Error::from)
        .map_err(system("draw random numbers"))
}

/// What a new incarnation of member `me` seals with.
fn begin_to_seal(me: NodeId, keys: KeyRing) -> Result<Seals, StartError> {
    let mut seed = Zeroizing::new([0; aead::SEED]);
    getrandom::fill(&mut *seed)
        .map_err(io::Error::from)
        .map_err(system("draw random numbers"))?;
    Ok(Seals::new(me, keys, &seed))
}

/// Says what a group without a key risks, if its datagrams leave the host.
fn warn_of_insecurity(members: &BTreeMap<NodeId, Address>) {
    if members.values().all(Address::is_loopback) {
        if members
            .values()
            .any(|address| matches!(address, Address::Udp(_)))
        {
            tracing::warn!(
                event = "unsealed",
                "datagrams on loopback are not sealed: any user of this host can end an agent, or \
                 let two in at once; to be safe from that, write a key with distlock keygen, and \
                 give all members key_file, or use unix addresses"
            );
        }
    } else {
        tracing::warn!(
            event = "unsealed",
            "datagrams leave this host and are not sealed (insecure = true): whoever can send some to a \
             member can let two in at once; to be safe from that, write a key with distlock keygen, \
             and give all members key_file"
        );
    }
}

pub(super) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}

/// How long a lock is held, and how long a member runs before it forgets its vote, in what is told of
/// voting: the example of the lecture.
const TYPICAL_STAY: Duration = Duration::from_secs(30);
const TYPICAL_UPTIME: Duration = Duration::from_secs(3600);

/// Says how probably locks that are served by voting exclude, if there are any.
fn warn_of_voting(settings: &Settings, members: usize) {
    let mut specs = settings.locks.values();
    if !settings.algorithm.is_probabilistic()
        && !specs.any(|spec| spec.algorithm.is_probabilistic())
    {
        return;
    }
    let votes = votes_needed(members);
    let forgets = TYPICAL_STAY.as_secs_f64() / TYPICAL_UPTIME.as_secs_f64();
    let probability = violation_probability(members as u32, votes as u32, forgets);
    tracing::warn!(
        event = "probabilistic",
        "algorithm = \"voting\" excludes with some probability only: a lock is held with {votes} of \
         {members} votes; if each member forgot its vote once an hour, a second one would get in \
         beside one that is inside for 30 s with a probability of {probability:.1e}; there are no \
         fences"
    );
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn a_forked_child_has_other_chances() {
        let (mut theirs, mut out) = io::pipe().unwrap();
        // What is kept for each thread is there before the fork.
        chance().unwrap();
        #[expect(unsafe_code, reason = "fork is what is tested")]
        // SAFETY: the child makes system calls only, and exits without running destructors.
        let forked = unsafe { fork() }.unwrap();
        let child = match forked {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let chance = chance().unwrap_or_default();
                let code = i32::from(out.write_all(&chance.to_le_bytes()).is_err());
                #[expect(unsafe_code, reason = "no destructor may run in the child of a test")]
                // SAFETY: `_exit` takes no locks and does not return.
                unsafe {
                    libc::_exit(code)
                }
            }
        };
        let mut other = [0; 8];
        theirs.read_exact(&mut other).unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        assert_ne!(u64::from_le_bytes(other), chance().unwrap());
    }
}
