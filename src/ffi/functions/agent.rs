//! Functions of `distlock_agent`.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use crate::ffi::agent::Agent;
use crate::ffi::arguments::out;
use crate::ffi::options::{self, distlock_options};
use crate::ffi::table::{self, Handle};
use crate::ffi::wait::{call, call_void};
use crate::ffi::{code, distlock_agent};

/// Takes part in a group, and stores the agent. The caller closes it with distlock_agent_close.
///
/// Without options it is the group that the environment names (`DISTLOCK_SOCKET`, `DISTLOCK_CONFIG`
/// with `DISTLOCK_ID`, or `DISTLOCK_DIR` for the local group); else that of this host's agent; else,
/// on a host without a configured group, the local one: the processes of this user on this host. A
/// member's function returns as soon as its address is bound; the group forms in the background, and
/// locking waits for it.
///
/// Returns 0, or with NULL stored:
/// -EINVAL: options or configuration are not valid, or `agent` is NULL;
/// -ENOTCONN: no agent serves the socket, or this host has a configured group and no agent runs;
/// -EBUSY: this member runs already; -EADDRINUSE: another socket has its address;
/// -EACCES: a directory, file or socket may not be used, or is not safe to use;
/// -EBADMSG: the member's state is damaged;
/// or what the system says, such as -ENOENT for a configuration that is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_open(
    options: *const distlock_options,
    agent: *mut *mut distlock_agent,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let agent = out(agent)?;
            let options = options::read(options)?;
            *agent = table::insert(Handle::Agent(Agent::open(&options)?))?;
        }
        Ok(0)
    })
}

/// Takes part in a configured group as distlock_agent_open does, as a member without a thread: for
/// programs that may have none. `options` are a member's. The program drives the agent:
///
/// - It polls distlock_agent_fd among its other descriptors, and calls distlock_agent_process when
///   it is readable.
/// - Functions that wait, such as distlock_lock, process until they have what they wait for, as
///   nobody else would. distlock_lock_begin asks without waiting.
/// - While it does neither, this member is silent: others wait for its answers, and when its lease
///   is over its locks are suspended and then lost, as those of a process that stands still.
///
/// Returns as distlock_agent_open; -EINVAL also for options of the local group or of a client.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_open_driven(
    options: *const distlock_options,
    agent: *mut *mut distlock_agent,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let agent = out(agent)?;
            let options = options::read(options)?;
            *agent = table::insert(Handle::Agent(Agent::open_driven(&options)?))?;
        }
        Ok(0)
    })
}

/// A descriptor that is readable when there is something to process in an agent of
/// distlock_agent_open_driven: for poll(2) and its like, without any other timeout. It is
/// close-on-exec, and belongs to the agent: do not read from it or close it. It is the same each
/// time, and ends with distlock_agent_close.
///
/// Returns the descriptor, or -EINVAL if the handle is invalid or has a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_fd(agent: *const distlock_agent) -> c_int {
    call(|| Ok(table::find::<Agent, _>(agent)?.driven()?.as_raw_fd()))
}

/// Does what there is to do in an agent of distlock_agent_open_driven: takes what has arrived, up to
/// a bound, answers, looks at the timers, and writes what must be on the disk. It waits for nothing
/// but the disk. If more is left, the descriptor stays readable.
///
/// Returns 0, or
/// -ENOTCONN: the agent cannot go on, since its state cannot be written, it was removed from the
/// group, or another process has taken its place;
/// -EINVAL: the handle is invalid, or has a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_process(agent: *mut distlock_agent) -> c_int {
    call(|| {
        let agent = table::find::<Agent, _>(agent)?;
        let processed = agent.driven()?.process();
        processed.map_err(|error| code::process(&error))?;
        Ok(0)
    })
}

/// Has the kernel send this process SIGIO whenever there is something to process in an agent of
/// distlock_agent_open_driven, or with 0 not any more: for programs that compute or sleep and do not
/// poll. It comes at once if there is something already. It may also come when there is nothing, and
/// one may stand for several.
///
/// The handler is the program's, and must call no function of this library: it notes that the signal
/// came, and the program calls distlock_agent_process when it sees the note, or when what it sleeps
/// in returns EINTR. Between a look and a sleep a signal would be missed: ppoll(2), sigsuspend(2)
/// and sigwaitinfo(2), with the signal blocked otherwise, miss none.
///
/// Returns 0, or
/// -EINVAL: the signal has no handler and is not blocked, so that it would end the program; or the
/// handle is invalid, or has a thread;
/// -ECANCELED: the agent cannot go on;
/// or what the system says, such as -EAGAIN where there are too many timers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_sigio(
    agent: *mut distlock_agent,
    is_on: c_int,
) -> c_int {
    call(|| {
        let agent = table::find::<Agent, _>(agent)?;
        let changed = agent.driven()?.set_sigio(is_on != 0);
        changed.map_err(|error| code::signal(&error))?;
        Ok(0)
    })
}

/// Stores for how many milliseconds there is nothing to process, if nothing arrives, in an agent of
/// distlock_agent_open_driven; -1 for no limit. The descriptor becomes readable then by itself: this
/// is for programs that cannot poll it.
///
/// Returns 0, or -EINVAL if the handle is invalid or has a thread, or if `timeout_ms`
/// is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_timeout(
    agent: *const distlock_agent,
    timeout_ms: *mut i64,
) -> c_int {
    call(|| {
        let timeout = table::find::<Agent, _>(agent)?.driven()?.timeout();
        // Rounded up, so that a caller that sleeps for so long does not come too early.
        let ms = timeout.map(|timeout| timeout.as_nanos().div_ceil(1_000_000));
        let ms = ms.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        // SAFETY: the caller's promise.
        *unsafe { timeout_ms.as_mut() }.ok_or(Errno::EINVAL)? = ms;
        Ok(0)
    })
}

/// Ends this process's part. What it holds is released, and lost to its holders; whoever waits gets
/// -ECANCELED, as does everything afterwards that is done with the agent's mutexes and semaphores,
/// which are closed on their own. Nothing happens with NULL or a closed agent.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_agent_close(agent: *mut distlock_agent) {
    call_void(|| {
        if let Some(agent) = table::remove::<Agent, _>(agent) {
            agent.close();
        }
    });
}
