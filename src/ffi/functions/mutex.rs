//! Functions of `distlock_mutex`.

use std::ffi::{c_char, c_int};
use std::num::NonZeroU32;
use std::sync::Arc;

use nix::errno::Errno;

use crate::backend::Patience;
use crate::ffi::agent::Agent;
use crate::ffi::arguments::{out, patience, tell, text};
use crate::ffi::mutex::Mutex;
use crate::ffi::table::{self, Handle};
use crate::ffi::wait::{Entrance, call, call_void, wait};
use crate::ffi::{code, distlock_agent, distlock_mutex};

/// Stores the mutex `name`, which is 1 to 255 bytes of any kind. The caller closes it with
/// distlock_mutex_close. The algorithm comes from the configuration. Several handles of one name
/// are one lock.
///
/// Returns 0, or with NULL stored:
/// -EINVAL: no name, or it is that of a semaphore with several permits;
/// -ENAMETOOLONG; -ECANCELED: the agent was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_mutex_open(
    agent: *mut distlock_agent,
    name: *const c_char,
    mutex: *mut *mut distlock_mutex,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let mutex = out(mutex)?;
            let name = text(name).ok_or(Errno::EINVAL)?;
            let agent = table::find::<Agent, _>(agent)?;
            let lock = agent.lock(name, Some(NonZeroU32::MIN))?;
            *mutex = table::insert(Handle::Mutex(Mutex::new(lock)))?;
        }
        Ok(0)
    })
}

/// Closes a mutex. If it is held through this handle it is released, and threads that wait by this
/// handle get -ECANCELED within a tenth of a second. Nothing happens with NULL or a closed mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_mutex_close(mutex: *mut distlock_mutex) {
    call_void(|| {
        if let Some(mutex) = table::remove::<Mutex, _>(mutex) {
            mutex.close();
        }
    });
}

/// Waits until this thread is inside, and stores the fence if `fence` is not NULL: a number that is
/// larger than those of all who had this lock alone before, to be handed to the resource, which
/// refuses lower ones than it has seen; or 0 where the group gives none.
///
/// A thread that was cancelled while it waits ends, and its request is withdrawn. Signal handlers
/// run, and do not end the wait.
///
/// Returns 0, or
/// -EOWNERDEAD: the lock is HELD, and the former holder died inside, or a member of the group died
/// and nobody can tell that it was not inside, so that what it protects may be half done;
/// -EDEADLK: this thread holds it already;
/// -ENOTCONN: there was no quorum for one lease, or the agent of this host is gone;
/// -ECANCELED: the mutex or its agent was closed;
/// -ENOLCK: a limit is exceeded, of locks, requests or open files;
/// -EINVAL: the handle is invalid, or the lock is in use as a semaphore;
/// or what the system says. The lock is held after 0 and -EOWNERDEAD only.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lock(
    mutex: *mut distlock_mutex,
    fence: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    wait(mutex_entrance(mutex), Patience::Lease, unsafe {
        tell(fence)
    })
}

/// Asks to enter for this thread, as distlock_lock, and does not wait: the request is sent now, and
/// distlock_lock_poll tells what becomes of it. It is of use where a thread does other things
/// meanwhile, of any agent.
///
/// Returns 0, or -EALREADY if this thread has asked by this handle before and has not been told yet;
/// else as distlock_lock, as far as it is known at once.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lock_begin(mutex: *mut distlock_mutex) -> c_int {
    call(|| {
        table::find::<Mutex, _>(mutex)?.ask()?;
        Ok(0)
    })
}

/// Tells what has become of what this thread has asked for with distlock_lock_begin. It does not
/// wait, and processes nothing. The lock may have been granted before it tells so, and others wait
/// from then on.
///
/// Returns -EINPROGRESS while nothing has; then, once, as distlock_lock, with the fence stored after
/// 0 and -EOWNERDEAD; -EINVAL also if this thread has asked for nothing by this handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lock_poll(
    mutex: *mut distlock_mutex,
    fence: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let told = unsafe { tell(fence) };
    call(|| {
        let (fence, previous) = table::find::<Mutex, _>(mutex)?.look()?;
        told(fence);
        code::entered(previous)?;
        Ok(0)
    })
}

/// Withdraws what this thread has asked for with distlock_lock_begin and has not been told of, if
/// there is anything.
///
/// Returns 0, or -EINVAL if the handle is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lock_cancel(mutex: *mut distlock_mutex) -> c_int {
    call(|| {
        table::find::<Mutex, _>(mutex)?.cancel();
        Ok(0)
    })
}

/// A descriptor that is readable when there may be something to tell of what threads have asked for
/// with distlock_lock_begin by this handle: for poll(2) and its like, in programs that have an event
/// loop. distlock_lock_poll tells it then, and makes it unreadable; each thread looks at its own. It
/// may be readable without reason.
/// It is close-on-exec, and belongs to the mutex: do not read from it or close it. It is the same
/// each time, and ends with distlock_mutex_close. Of an agent of distlock_agent_open_driven it becomes
/// readable as distlock_agent_process processes.
///
/// Returns the descriptor, -EINVAL if the handle is invalid, or -EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lock_fd(mutex: *const distlock_mutex) -> c_int {
    call(|| table::find::<Mutex, _>(mutex)?.decided_fd())
}

/// Enters if the lock is free, as distlock_lock.
///
/// Returns as distlock_lock, and -EBUSY if it is not free, also if this thread holds it; -ENOTCONN if
/// the host's agent or the group has not said within one second whether it is.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_trylock(
    mutex: *mut distlock_mutex,
    fence: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    wait(mutex_entrance(mutex), Patience::Try, unsafe { tell(fence) })
}

/// Waits as distlock_lock, but for at most `timeout_ms` milliseconds, and so long also while
/// there is no quorum; with -1 without any limit.
///
/// Returns as distlock_lock, and -ETIMEDOUT when the time is over, or -ENOTCONN if there is no
/// quorum then, or if the host's agent has not answered 0.2 seconds later; -EINVAL for a time below
/// -1.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_timedlock(
    mutex: *mut distlock_mutex,
    timeout_ms: i64,
    fence: *mut u64,
) -> c_int {
    let Some(patience) = patience(timeout_ms) else {
        return -libc::EINVAL;
    };
    // SAFETY: the caller's promise.
    wait(mutex_entrance(mutex), patience, unsafe { tell(fence) })
}

/// Unlocks what this thread has locked by this handle. If its lease has run out meanwhile, the
/// function waits until it is known whether another had been let in, at most a lease.
///
/// Returns 0, or
/// -EPERM: this thread does not hold it by this handle;
/// -ESTALE: it had been lost before, or that is not known in time, so another may have been inside
/// since;
/// -ECANCELED: the mutex or the agent was closed, which released it;
/// -EINVAL: the handle is invalid;
/// or what the system says. This thread does not hold the lock afterwards in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_unlock(mutex: *mut distlock_mutex) -> c_int {
    call(|| {
        table::find::<Mutex, _>(mutex)?.unlock()?;
        Ok(0)
    })
}

/// Whether the lock is held by this handle, and not lost, and its lease has not run out. It looks at
/// the clock and asks nobody, so on 1 it was held a moment ago: what must not happen without the
/// lock needs the fence too. After 0 it may be held again, when a lease that has run out is renewed
/// before others went on without this member; if they did it is lost, and stays so.
///
/// Returns 1 or 0, or -EINVAL if the handle is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_is_held(mutex: *const distlock_mutex) -> c_int {
    call(|| Ok(c_int::from(table::find::<Mutex, _>(mutex)?.is_held())))
}

/// A descriptor that becomes readable when the lock is lost while it is held by this handle: for
/// poll(2) and its like. That its lease runs out is no loss yet, and only distlock_is_held tells of
/// it. It stays readable until distlock_unlock, or the next time the lock is taken.
/// It is close-on-exec, and belongs to the mutex: do not read from it or close it. It is the same
/// each time, and ends with distlock_mutex_close.
///
/// Returns the descriptor, -EINVAL if the handle is invalid, or -EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_lost_fd(mutex: *const distlock_mutex) -> c_int {
    call(|| table::find::<Mutex, _>(mutex)?.lost_fd())
}

fn mutex_entrance(
    mutex: *const distlock_mutex,
) -> impl FnOnce() -> Result<Arc<dyn Entrance>, Errno> {
    move || {
        let mutex: Arc<dyn Entrance> = table::find::<Mutex, _>(mutex)?;
        Ok(mutex)
    }
}
