/*
 * distlock: distributed mutual exclusion without a server.
 *
 * Codes. Functions that return `int` return 0, or a value where that is said, or a negative errno;
 * distlock_strerror tells what it means. Two things to know: after -EOWNERDEAD the lock is HELD;
 * and a defect in the library is -EIO, after words on standard error.
 *
 * Units. Times are in milliseconds, on a clock that goes on while the host sleeps; -1 is no limit.
 *
 * Ownership. What distlock_..._open stores belongs to the caller, who closes it once with the
 * distlock_..._close of its kind. Handles are looked up and never dereferenced: after they were
 * closed they are -EINVAL, and closing them again does nothing. What other threads do with a
 * handle while it is closed ends in order. Strings are copied.
 *
 * Threads. All functions may be called by all threads at once. A lock belongs to the thread that
 * took it, and is not recursive; a permit of a semaphore belongs to the process. No function calls
 * back, and none may be called in a signal handler. Threads of the library block all signals.
 *
 * fork. A child has none of its parent's handles: they are -EINVAL, and what the parent holds is
 * not touched. The child opens an agent of its own. In the local group a lock is a descriptor,
 * close-on-exec, which the child inherits: should its parent die while it holds the lock, the lock
 * is free when the child has ended too, or has called exec.
 *
 * Cancellation (pthread_cancel). distlock_lock, distlock_timedlock, distlock_sem_wait and
 * distlock_sem_timedwait are cancellation points while they wait: within a tenth of a second the
 * thread ends, and its request is withdrawn, after the program's own cleanup handlers. No other
 * function is one. Asynchronous cancellation must be off.
 */


#ifndef DISTLOCK_H
#define DISTLOCK_H

/* Generated from src/ffi.rs; do not edit. To make it anew: DISTLOCK_BLESS=1 cargo test -p distlock-lab --test c_header */

#include <stddef.h>
#include <stdint.h>

/**
 * A flag of `distlock_options`: the local group is meant, the processes of this user on this host,
 * whatever the environment says and whatever group this host has.
 */
#define DISTLOCK_LOCAL 1

/**
 * This process's part in a group. All agents, mutexes and semaphores may be used by all threads
 * at once.
 */
typedef struct distlock_agent distlock_agent;

/**
 * A mutex of a group, by its name.
 */
typedef struct distlock_mutex distlock_mutex;

/**
 * A counting semaphore of a group, by its name.
 */
typedef struct distlock_sem distlock_sem;

/**
 * Which group to take part in, and how. Set all of it to zero, then `size` to
 * `sizeof(distlock_options)`, then what is wanted:
 *
 * - nothing: the group that the environment or this host says, as with no options at all;
 * - `flags = DISTLOCK_LOCAL`: the local group;
 * - `config_path` and `id`, and `state_dir` if wanted: a member of the configured group, with an
 *   agent in a thread of this process;
 * - `socket_path`: a client of the agent that serves this socket (`distlock agent`);
 * - `at`: the group at that place, as `distlock run --at` takes it: a store's, like
 *   `etcd://10.0.0.1,10.0.0.2?group=shop` or `postgresql://app@db/shop`.
 *
 * Anything else is -EINVAL. The strings are not needed any more when the function returns.
 */
typedef struct distlock_options {
    /**
     * `sizeof(distlock_options)`, so that later versions can add members: those that a program
     * does not know are zero, and those that the library does not know have to be.
     */
    size_t size;
    /**
     * The group's configuration file, see distlock.toml(5).
     */
    const char *config_path;
    /**
     * This member's number in it, 1 to 65535.
     */
    uint32_t id;
    /**
     * The Unix stream socket of this host's agent.
     */
    const char *socket_path;
    /**
     * Where the member keeps what must outlive the process; NULL is the default place.
     */
    const char *state_dir;
    /**
     * `DISTLOCK_LOCAL`, or 0.
     */
    uint32_t flags;
    /**
     * Where the group is, in UTF-8.
     */
    const char *at;
} distlock_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.2.0". It need not be that of this header.
 */
const char *distlock_version(void);

/**
 * What a code that a function returned means, in a few words. It takes plain errno values too, of
 * either sign. Never NULL; not to be freed.
 */
const char *distlock_strerror(int code);

/**
 * Takes part in a group, and stores the agent. The caller closes it with distlock_agent_close.
 *
 * Without options it is the group that the environment names (`DISTLOCK_SOCKET`, `DISTLOCK_CONFIG`
 * with `DISTLOCK_ID`, or `DISTLOCK_DIR` for the local group); else that of this host's agent; else,
 * on a host without a configured group, the local one: the processes of this user on this host. A
 * member's function returns as soon as its address is bound; the group forms in the background, and
 * locking waits for it.
 *
 * Returns 0, or with NULL stored:
 * -EINVAL: options or configuration are not valid, or `agent` is NULL;
 * -ENOTCONN: no agent serves the socket, or this host has a configured group and no agent runs;
 * -EBUSY: this member runs already; -EADDRINUSE: another socket has its address;
 * -EACCES: a directory, file or socket may not be used, or is not safe to use;
 * -EBADMSG: the member's state is damaged;
 * or what the system says, such as -ENOENT for a configuration that is not there.
 */
int distlock_agent_open(const struct distlock_options *options, struct distlock_agent **agent);

/**
 * Takes part in a configured group as distlock_agent_open does, as a member without a thread: for
 * programs that may have none. `options` are a member's. The program drives the agent:
 *
 * - It polls distlock_agent_fd among its other descriptors, and calls distlock_agent_process when
 *   it is readable.
 * - Functions that wait, such as distlock_lock, process until they have what they wait for, as
 *   nobody else would. distlock_lock_begin asks without waiting.
 * - While it does neither, this member is silent: others wait for its answers, and when its lease
 *   is over its locks are suspended and then lost, as those of a process that stands still.
 *
 * Returns as distlock_agent_open; -EINVAL also for options of the local group or of a client.
 */
int distlock_agent_open_driven(const struct distlock_options *options, struct distlock_agent **agent);

/**
 * A descriptor that is readable when there is something to process in an agent of
 * distlock_agent_open_driven: for poll(2) and its like, without any other timeout. It is
 * close-on-exec, and belongs to the agent: do not read from it or close it. It is the same each
 * time, and ends with distlock_agent_close.
 *
 * Returns the descriptor, or -EINVAL if the handle is invalid or has a thread.
 */
int distlock_agent_fd(const struct distlock_agent *agent);

/**
 * Does what there is to do in an agent of distlock_agent_open_driven: takes what has arrived, up to
 * a bound, answers, looks at the timers, and writes what must be on the disk. It waits for nothing
 * but the disk. If more is left, the descriptor stays readable.
 *
 * Returns 0, or
 * -ENOTCONN: the agent cannot go on, since its state cannot be written, it was removed from the
 * group, or another process has taken its place;
 * -EINVAL: the handle is invalid, or has a thread.
 */
int distlock_agent_process(struct distlock_agent *agent);

/**
 * Has the kernel send this process SIGIO whenever there is something to process in an agent of
 * distlock_agent_open_driven, or with 0 not any more: for programs that compute or sleep and do not
 * poll. It comes at once if there is something already. It may also come when there is nothing, and
 * one may stand for several.
 *
 * The handler is the program's, and must call no function of this library: it notes that the signal
 * came, and the program calls distlock_agent_process when it sees the note, or when what it sleeps
 * in returns EINTR. Between a look and a sleep a signal would be missed: ppoll(2), sigsuspend(2)
 * and sigwaitinfo(2), with the signal blocked otherwise, miss none.
 *
 * Returns 0, or
 * -EINVAL: the signal has no handler and is not blocked, so that it would end the program; or the
 * handle is invalid, or has a thread;
 * -ECANCELED: the agent cannot go on;
 * or what the system says, such as -EAGAIN where there are too many timers.
 */
int distlock_agent_sigio(struct distlock_agent *agent, int is_on);

/**
 * Stores for how many milliseconds there is nothing to process, if nothing arrives, in an agent of
 * distlock_agent_open_driven; -1 for no limit. The descriptor becomes readable then by itself: this
 * is for programs that cannot poll it.
 *
 * Returns 0, or -EINVAL if the handle is invalid or has a thread, or if `timeout_ms`
 * is NULL.
 */
int distlock_agent_timeout(const struct distlock_agent *agent, int64_t *timeout_ms);

/**
 * Ends this process's part. What it holds is released, and lost to its holders; whoever waits gets
 * -ECANCELED, as does everything afterwards that is done with the agent's mutexes and semaphores,
 * which are closed on their own. Nothing happens with NULL or a closed agent.
 */
void distlock_agent_close(struct distlock_agent *agent);

/**
 * Stores the mutex `name`, which is 1 to 255 bytes of any kind. The caller closes it with
 * distlock_mutex_close. The algorithm comes from the configuration. Several handles of one name
 * are one lock.
 *
 * Returns 0, or with NULL stored:
 * -EINVAL: no name, or it is that of a semaphore with several permits;
 * -ENAMETOOLONG; -ECANCELED: the agent was closed.
 */
int distlock_mutex_open(struct distlock_agent *agent, const char *name, struct distlock_mutex **mutex);

/**
 * Closes a mutex. If it is held through this handle it is released, and threads that wait by this
 * handle get -ECANCELED within a tenth of a second. Nothing happens with NULL or a closed mutex.
 */
void distlock_mutex_close(struct distlock_mutex *mutex);

/**
 * Waits until this thread is inside, and stores the fence if `fence` is not NULL: a number that is
 * larger than those of all who had this lock alone before, to be handed to the resource, which
 * refuses lower ones than it has seen; or 0 where the group gives none.
 *
 * A thread that was cancelled while it waits ends, and its request is withdrawn. Signal handlers
 * run, and do not end the wait.
 *
 * Returns 0, or
 * -EOWNERDEAD: the lock is HELD, and the former holder died inside, or a member of the group died
 * and nobody can tell that it was not inside, so that what it protects may be half done;
 * -EDEADLK: this thread holds it already;
 * -ENOTCONN: there was no quorum for one lease, or the agent of this host is gone;
 * -ECANCELED: the mutex or its agent was closed;
 * -ENOLCK: a limit is exceeded, of locks, requests or open files;
 * -EINVAL: the handle is invalid, or the lock is in use as a semaphore;
 * or what the system says. The lock is held after 0 and -EOWNERDEAD only.
 */
int distlock_lock(struct distlock_mutex *mutex, uint64_t *fence);

/**
 * Asks to enter for this thread, as distlock_lock, and does not wait: the request is sent now, and
 * distlock_lock_poll tells what becomes of it. It is of use where a thread does other things
 * meanwhile, of any agent.
 *
 * Returns 0, or -EALREADY if this thread has asked by this handle before and has not been told yet;
 * else as distlock_lock, as far as it is known at once.
 */
int distlock_lock_begin(struct distlock_mutex *mutex);

/**
 * Tells what has become of what this thread has asked for with distlock_lock_begin. It does not
 * wait, and processes nothing. The lock may have been granted before it tells so, and others wait
 * from then on.
 *
 * Returns -EINPROGRESS while nothing has; then, once, as distlock_lock, with the fence stored after
 * 0 and -EOWNERDEAD; -EINVAL also if this thread has asked for nothing by this handle.
 */
int distlock_lock_poll(struct distlock_mutex *mutex, uint64_t *fence);

/**
 * Withdraws what this thread has asked for with distlock_lock_begin and has not been told of, if
 * there is anything.
 *
 * Returns 0, or -EINVAL if the handle is invalid.
 */
int distlock_lock_cancel(struct distlock_mutex *mutex);

/**
 * A descriptor that is readable when there may be something to tell of what threads have asked for
 * with distlock_lock_begin by this handle: for poll(2) and its like, in programs that have an event
 * loop. distlock_lock_poll tells it then, and makes it unreadable; each thread looks at its own. It
 * may be readable without reason.
 * It is close-on-exec, and belongs to the mutex: do not read from it or close it. It is the same
 * each time, and ends with distlock_mutex_close. Of an agent of distlock_agent_open_driven it becomes
 * readable as distlock_agent_process processes.
 *
 * Returns the descriptor, -EINVAL if the handle is invalid, or -EMFILE.
 */
int distlock_lock_fd(const struct distlock_mutex *mutex);

/**
 * Enters if the lock is free, as distlock_lock.
 *
 * Returns as distlock_lock, and -EBUSY if it is not free, also if this thread holds it; -ENOTCONN if
 * the host's agent or the group has not said within one second whether it is.
 */
int distlock_trylock(struct distlock_mutex *mutex, uint64_t *fence);

/**
 * Waits as distlock_lock, but for at most `timeout_ms` milliseconds, and so long also while
 * there is no quorum; with -1 without any limit.
 *
 * Returns as distlock_lock, and -ETIMEDOUT when the time is over, or -ENOTCONN if there is no
 * quorum then, or if the host's agent has not answered 0.2 seconds later; -EINVAL for a time below
 * -1.
 */
int distlock_timedlock(struct distlock_mutex *mutex, int64_t timeout_ms, uint64_t *fence);

/**
 * Unlocks what this thread has locked by this handle. If its lease has run out meanwhile, the
 * function waits until it is known whether another had been let in, at most a lease.
 *
 * Returns 0, or
 * -EPERM: this thread does not hold it by this handle;
 * -ESTALE: it had been lost before, or that is not known in time, so another may have been inside
 * since;
 * -ECANCELED: the mutex or the agent was closed, which released it;
 * -EINVAL: the handle is invalid;
 * or what the system says. This thread does not hold the lock afterwards in any case.
 */
int distlock_unlock(struct distlock_mutex *mutex);

/**
 * Whether the lock is held by this handle, and not lost, and its lease has not run out. It looks at
 * the clock and asks nobody, so on 1 it was held a moment ago: what must not happen without the
 * lock needs the fence too. After 0 it may be held again, when a lease that has run out is renewed
 * before others went on without this member; if they did it is lost, and stays so.
 *
 * Returns 1 or 0, or -EINVAL if the handle is invalid.
 */
int distlock_is_held(const struct distlock_mutex *mutex);

/**
 * A descriptor that becomes readable when the lock is lost while it is held by this handle: for
 * poll(2) and its like. That its lease runs out is no loss yet, and only distlock_is_held tells of
 * it. It stays readable until distlock_unlock, or the next time the lock is taken.
 * It is close-on-exec, and belongs to the mutex: do not read from it or close it. It is the same
 * each time, and ends with distlock_mutex_close.
 *
 * Returns the descriptor, -EINVAL if the handle is invalid, or -EMFILE.
 */
int distlock_lost_fd(const struct distlock_mutex *mutex);

/**
 * Stores the semaphore `name`, of which `permits` may be held at a time; 0 takes the number from
 * the configuration. All users must say the same. The caller closes it with distlock_sem_close.
 *
 * Returns as distlock_mutex_open; -EINVAL also if the number is not that of the semaphore, is not
 * known, or is too large.
 */
int distlock_sem_open(struct distlock_agent *agent, const char *name, uint32_t permits, struct distlock_sem **sem);

/**
 * Waits for a permit. A permit belongs to the process, and comes back when that ends.
 *
 * Cancellation, signals and returned codes are as for distlock_lock. -EDEADLK means that this
 * thread has taken all the permits; -EOWNERDEAD, that a permit is HELD, and that its former holder
 * died with it (in a configured group: that some former holder of a permit did).
 */
int distlock_sem_wait(struct distlock_sem *sem);

/**
 * Takes a permit if there is one, as distlock_sem_wait.
 *
 * Returns as distlock_sem_wait, and -EBUSY if there is none.
 */
int distlock_sem_trywait(struct distlock_sem *sem);

/**
 * Waits as distlock_sem_wait, but for at most `timeout_ms` milliseconds, and so long also while
 * there is no quorum; with -1 without any limit.
 *
 * Returns as distlock_sem_wait, and -ETIMEDOUT when the time is over, or -ENOTCONN if there is no
 * quorum then; -EINVAL for a time below -1.
 */
int distlock_sem_timedwait(struct distlock_sem *sem, int64_t timeout_ms);

/**
 * Gives back a permit that this process has taken from this semaphore of this agent, by whichever
 * thread and handle: best one of this thread. Unlike sem_post(3) it makes no permits, and it may
 * not be called in a signal handler.
 *
 * Returns 0, or -EPERM if there is none to give back; else as distlock_unlock.
 */
int distlock_sem_post(struct distlock_sem *sem);

/**
 * Stores how many permits nobody in the group holds. It may be another number a moment later, and
 * asks the whole group: it is for people.
 *
 * Returns 0, -ENOTCONN, -ECANCELED, or -EINVAL.
 */
int distlock_sem_getvalue(struct distlock_sem *sem, int *value);

/**
 * Closes a semaphore. Permits that were taken by this handle are given back, and threads that wait
 * by it get -ECANCELED within a tenth of a second. Nothing happens with NULL or a closed
 * semaphore.
 */
void distlock_sem_close(struct distlock_sem *sem);

/**
 * Refuses a fence that is lower than one that was seen, at the resource that a lock protects: the
 * holder hands its fence to the resource, and the resource does what it is asked only after 0.
 * `file` keeps the highest fence, durably; it is made by the first check, and `file`.lock beside
 * it. Any number of processes and threads may check at once.
 *
 * Returns 0, or
 * -ESTALE: the fence is lower than one that was seen, so that another was inside since;
 * -EINVAL: `fence` is 0 or above INT64_MAX, or there is no `file`;
 * -EBADMSG: the file is damaged, or none of fences;
 * -EBUSY: another process has had `file`.lock locked for ten seconds;
 * or what the system says, such as -ENOENT for a directory that is not there. After anything but
 * 0 the fence is not let through.
 */
int distlock_fence_check(const char *file, uint64_t fence);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DISTLOCK_H */
