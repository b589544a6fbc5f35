//! Functions of `distlock_sem`.

use std::ffi::{c_char, c_int};
use std::num::NonZeroU32;
use std::sync::Arc;

use nix::errno::Errno;

use crate::backend::Patience;
use crate::ffi::agent::Agent;
use crate::ffi::arguments::{out, patience, text};
use crate::ffi::sem::Sem;
use crate::ffi::table::{self, Handle};
use crate::ffi::wait::{Entrance, call, call_void, wait};
use crate::ffi::{distlock_agent, distlock_sem};

/// Stores the semaphore `name`, of which `permits` may be held at a time; 0 takes the number from
/// the configuration. All users must say the same. The caller closes it with distlock_sem_close.
///
/// Returns as distlock_mutex_open; -EINVAL also if the number is not that of the semaphore, is not
/// known, or is too large.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_open(
    agent: *mut distlock_agent,
    name: *const c_char,
    permits: u32,
    sem: *mut *mut distlock_sem,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let sem = out(sem)?;
            let name = text(name).ok_or(Errno::EINVAL)?;
            let agent = table::find::<Agent, _>(agent)?;
            let lock = agent.lock(name, NonZeroU32::new(permits))?;
            *sem = table::insert(Handle::Sem(Sem::new(lock, agent)))?;
        }
        Ok(0)
    })
}

/// Waits for a permit. A permit belongs to the process, and comes back when that ends.
///
/// Cancellation, signals and returned codes are as for distlock_lock. -EDEADLK means that this
/// thread has taken all the permits; -EOWNERDEAD, that a permit is HELD, and that its former holder
/// died with it (in a configured group: that some former holder of a permit did).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_wait(sem: *mut distlock_sem) -> c_int {
    wait(sem_entrance(sem), Patience::Lease, |_| ())
}

/// Takes a permit if there is one, as distlock_sem_wait.
///
/// Returns as distlock_sem_wait, and -EBUSY if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_trywait(sem: *mut distlock_sem) -> c_int {
    wait(sem_entrance(sem), Patience::Try, |_| ())
}

/// Waits as distlock_sem_wait, but for at most `timeout_ms` milliseconds, and so long also while
/// there is no quorum; with -1 without any limit.
///
/// Returns as distlock_sem_wait, and -ETIMEDOUT when the time is over, or -ENOTCONN if there is no
/// quorum then; -EINVAL for a time below -1.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_timedwait(
    sem: *mut distlock_sem,
    timeout_ms: i64,
) -> c_int {
    let Some(patience) = patience(timeout_ms) else {
        return -libc::EINVAL;
    };
    wait(sem_entrance(sem), patience, |_| ())
}

/// Gives back a permit that this process has taken from this semaphore of this agent, by whichever
/// thread and handle: best one of this thread. Unlike sem_post(3) it makes no permits, and it may
/// not be called in a signal handler.
///
/// Returns 0, or -EPERM if there is none to give back; else as distlock_unlock.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_post(sem: *mut distlock_sem) -> c_int {
    call(|| {
        table::find::<Sem, _>(sem)?.post()?;
        Ok(0)
    })
}

/// Stores how many permits nobody in the group holds. It may be another number a moment later, and
/// asks the whole group: it is for people.
///
/// Returns 0, -ENOTCONN, -ECANCELED, or -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_getvalue(
    sem: *mut distlock_sem,
    value: *mut c_int,
) -> c_int {
    call(|| {
        let free = table::find::<Sem, _>(sem)?.value()?;
        // SAFETY: the caller's promise.
        *unsafe { value.as_mut() }.ok_or(Errno::EINVAL)? = free;
        Ok(0)
    })
}

/// Closes a semaphore. Permits that were taken by this handle are given back, and threads that wait
/// by it get -ECANCELED within a tenth of a second. Nothing happens with NULL or a closed
/// semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_sem_close(sem: *mut distlock_sem) {
    call_void(|| {
        if let Some(sem) = table::remove::<Sem, _>(sem) {
            sem.close();
        }
    });
}

fn sem_entrance(sem: *const distlock_sem) -> impl FnOnce() -> Result<Arc<dyn Entrance>, Errno> {
    move || {
        let sem: Arc<dyn Entrance> = table::find::<Sem, _>(sem)?;
        Ok(sem)
    }
}
