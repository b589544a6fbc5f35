//! The C library: the functions of `include/distlock.h`, which is generated from this file.
//!
//! They are a border, and do no work of their own: what C gives is checked and turned into what
//! the rest of the crate speaks, and errors are turned into numbers. What is behind the handles is
//! in the modules below.
//!
//! # Safety
//! As in any C interface: what is not NULL points to what its type says, for as long as the call
//! lasts. Handles are excepted, since they are looked up and not followed.

#![expect(
    unsafe_code,
    reason = "C has exported names, raw pointers and cancellation"
)]
#![expect(non_camel_case_types, reason = "the names of the C interface")]
#![expect(unreachable_pub, reason = "the header is made of the public items")]

mod agent;
mod cancel;
mod code;
mod lost;
mod mutex;
mod options;
mod sem;
mod table;
mod wait;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use self::agent::Agent;
use self::mutex::Mutex;
use self::sem::Sem;
use self::table::Handle;
use self::wait::{Entrance, call, call_void, wait};
use crate::backend::Patience;
use crate::{Fence, FenceChecker};

/// This process's part in a group. All agents, mutexes and semaphores may be used by all threads
/// at once.
pub struct distlock_agent(());

/// A mutex of a group, by its name.
pub struct distlock_mutex(());

/// A counting semaphore of a group, by its name.
pub struct distlock_sem(());

/// A flag of `distlock_options`: the local group is meant, the processes of this user on this host,
/// whatever the environment says and whatever group this host has.
pub const DISTLOCK_LOCAL: u32 = 1;

/// Which group to take part in, and how. Set all of it to zero, then `size` to
/// `sizeof(distlock_options)`, then what is wanted:
///
/// - nothing: the group that the environment or this host says, as with no options at all;
/// - `flags = DISTLOCK_LOCAL`: the local group;
/// - `config_path` and `id`, and `state_dir` if wanted: a member of the configured group, with an
///   agent in a thread of this process;
/// - `socket_path`: a client of the agent that serves this socket (`distlock agent`).
///
/// Anything else is -EINVAL. The strings are not needed any more when the function returns.
#[repr(C)]
pub struct distlock_options {
    /// `sizeof(distlock_options)`, so that later versions can add members: those that a program
    /// does not know are zero, and those that the library does not know have to be.
    pub size: usize,
    /// The group's configuration file, see distlock.toml(5).
    pub config_path: *const c_char,
    /// This member's number in it, 1 to 65535.
    pub id: u32,
    /// The Unix stream socket of this host's agent.
    pub socket_path: *const c_char,
    /// Where the member keeps what must outlive the process; NULL is the default place.
    pub state_dir: *const c_char,
    /// `DISTLOCK_LOCAL`, or 0.
    pub flags: u32,
    /// Must be NULL: it is for stores of a later version.
    pub at: *const c_char,
}

/// The version of the library, such as "0.1.0". It need not be that of this header.
#[unsafe(no_mangle)]
pub extern "C" fn distlock_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL byte"),
        };
    VERSION.as_ptr()
}

/// What a code that a function returned means, in a few words. It takes plain errno values too, of
/// either sign. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn distlock_strerror(code: c_int) -> *const c_char {
    code::words(code).as_ptr()
}

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
        // Rounded up, so that who sleeps for so long does not come too early.
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
        drop(table::find::<Mutex, _>(mutex)?.take_asked());
        Ok(0)
    })
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

/// Refuses a fence that is lower than one that was seen, at the resource that a lock protects: the
/// holder hands its fence to the resource, and the resource does what it is asked only after 0.
/// `file` keeps the highest fence, durably; it is made by the first check, and `file`.lock beside
/// it. Any number of processes and threads may check at once.
///
/// Returns 0, or
/// -ESTALE: the fence is lower than one that was seen, so that another was inside since;
/// -EINVAL: `fence` is 0 or above INT64_MAX, or there is no `file`;
/// -EBADMSG: the file is damaged, or none of fences;
/// -EBUSY: another process has had `file`.lock locked for ten seconds;
/// or what the system says, such as -ENOENT for a directory that is not there. After anything but
/// 0 the fence is not let through.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_fence_check(file: *const c_char, fence: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { text(file) }.ok_or(Errno::EINVAL)?;
        let fence = Fence::new(fence).ok_or(Errno::EINVAL)?;
        let checker = FenceChecker::new(OsStr::from_bytes(file.to_bytes()));
        checker.check(fence).map_err(|error| code::fence(&error))?;
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

fn mutex_entrance(
    mutex: *const distlock_mutex,
) -> impl FnOnce() -> Result<Arc<dyn Entrance>, Errno> {
    move || {
        let mutex: Arc<dyn Entrance> = table::find::<Mutex, _>(mutex)?;
        Ok(mutex)
    }
}

fn sem_entrance(sem: *const distlock_sem) -> impl FnOnce() -> Result<Arc<dyn Entrance>, Errno> {
    move || {
        let sem: Arc<dyn Entrance> = table::find::<Sem, _>(sem)?;
        Ok(sem)
    }
}

/// What a C program says about time; `None` if it is nonsense.
fn patience(timeout_ms: i64) -> Option<Patience> {
    match timeout_ms {
        -1 => Some(Patience::For(Duration::MAX)),
        _ => Some(Patience::For(Duration::from_millis(
            u64::try_from(timeout_ms).ok()?,
        ))),
    }
}

/// What stores a fence at `fence`.
///
/// # Safety
/// `fence` is NULL, or may be written to until the function of the interface returns.
unsafe fn tell(fence: *mut u64) -> impl FnOnce(Option<Fence>) + Copy {
    move |granted: Option<Fence>| {
        // SAFETY: the caller's promise.
        if let Some(fence) = unsafe { fence.as_mut() } {
            *fence = granted.map_or(0, Fence::as_u64);
        }
    }
}

/// The place for a new handle, with NULL in it.
///
/// # Safety
/// `place` is NULL, or may be written to.
unsafe fn out<'a, T>(place: *mut *mut T) -> Result<&'a mut *mut T, Errno> {
    if place.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise. It may not have been initialised, so it is written first.
    unsafe {
        place.write(ptr::null_mut());
        Ok(&mut *place)
    }
}

/// The string at `text`, unless it is NULL.
///
/// # Safety
/// `text` is NULL, or a string that lives and does not change during `'a`.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
