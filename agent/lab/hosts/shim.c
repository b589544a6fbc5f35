/* A process in a simulated world: loaded before the C library, it takes what the program asks of clocks,
 * timers, threads, datagrams and the scheduler, and leaves files, pipes, Unix streams, descriptors,
 * signals and memory to the kernel. Of all threads of all processes of a world one runs at a time: the
 * one to which the scheduler has given the turn. It keeps the turn until it would block, or has come to
 * as many points (calls of the system) as the scheduler allowed. Whatever would block is tried without
 * blocking, and the thread waits until the scheduler has it try again, or until its time is over.
 *
 * What scheduler and processes share is the page, laid out as agent/lab/examples/host_campaign/page.rs says. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 256, TIMERS = 256, HOSTS = 16, PARCELS = 64, ROOM = 4096, NAME = 16, WAITED = 6, CLOSED = 16 };
static const int64_t SECOND = 1000000000;
static const uint64_t NEVER = UINT64_MAX;

/* What a thread is about. */
enum { FREE, PARKED, RUNNING, ENDED };
/* What a parked thread waits for: its turn; that something happens on its host; its time; that a futex
 * is woken; that another thread ends; that the judge asks. */
enum { TURN, RETRY, SLEEP, FUTEX, JOIN, ASKED };
/* By what it was woken. */
enum { GO, LATE };
/* What it has said as it gave the turn back. */
enum { NOTHING, EXITS, SYNCED, TOLD, SIGNALLED, EXECUTED, SYNCS, UNSYNCED };

/* A clock of a host: how much it shows at `base`, in true nanoseconds, and how much it gains. */
struct host {
    int64_t base;
    int64_t gains; /* parts per thousand million */
    int64_t monotonic, boottime, realtime;
    uint64_t random;
    uint32_t disk_error, fails_at_sync_only;
};

struct slot {
    _Atomic uint32_t go;
    _Atomic uint32_t state;
    uint32_t pid, tid, host;
    uint32_t waits; /* TURN … */
    uint32_t clock;
    uint32_t woken; /* GO or LATE */
    uint64_t deadline; /* of its host's clock */
    uint64_t key; /* a futex, or the slot of a thread */
    int32_t quantum;
    uint32_t said; /* NOTHING … */
    uint64_t words[4]; /* what it has said */
    uint32_t waits_for; /* one more than the descriptors for which it waits; 0: anything */
    uint32_t taken; /* where it is about to take a datagram: how many it has, since it waited for some */
    uint32_t sent; /* it has just sent something */
    uint32_t epoll; /* the number of the epoll for which it waits, if it waits for one */
    struct pollfd fds[WAITED];
    char name[NAME];
};

/* A timer of a process: an eventfd that the scheduler writes to. */
struct timer {
    uint32_t pid, fd, host, clock;
    uint64_t deadline;
    uint32_t used, armed;
};

/* A datagram: IPv4 addresses and ports as in the network. */
struct parcel {
    uint32_t from, to;
    uint16_t from_port, to_port;
    uint32_t len;
    uint32_t host, pad;
    uint64_t at;
    unsigned char data[ROOM];
};

struct page {
    _Atomic uint32_t turn; /* 1 while a thread has it */
    _Atomic uint32_t spawning; /* a process that starts does not have the turn */
    uint64_t now; /* true nanoseconds */
    uint64_t point; /* how long a point takes */
    uint32_t sent; /* parcels that the scheduler has not taken yet */
    uint32_t port; /* the next one that nobody has chosen */
    uint32_t stirred; /* something was done on a host for which another thread there may wait */
    uint32_t full; /* a thread has waited for room: reading makes some */
    uint32_t slots_used, timers_used; /* none behind these has ever been used */
    uint32_t epolls; /* how many there have been */
    uint32_t closed; /* those that the scheduler has not been told of yet */
    uint32_t closed_epolls[CLOSED];
    struct host hosts[HOSTS];
    struct slot slots[SLOTS];
    struct timer timers[TIMERS];
    struct parcel parcels[PARCELS];
};

static struct page *page;
static uint32_t host;
static __thread struct slot *me __attribute__((tls_model("initial-exec")));
/* Datagrams that this thread has taken since it waited for some. */
static __thread uint32_t taken __attribute__((tls_model("initial-exec")));
static pthread_key_t ending;

static long sys(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define SYS(number, ...) SYS_OF(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define SYS_OF(number, a, b, c, d, e, f, ...) \
    sys(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static long result(long done)
{
    if (done >= 0)
        return done;
    errno = (int)-done;
    return -1;
}

static void wait_while(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load(word) == value)
        SYS(SYS_futex, word, FUTEX_WAIT, value, 0);
}

static void set(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    SYS(SYS_futex, word, FUTEX_WAKE, INT32_MAX);
}

static int64_t nanos(const struct timespec *time)
{
    return time->tv_sec * SECOND + time->tv_nsec;
}

static struct timespec spec(int64_t nanos)
{
    return (struct timespec){.tv_sec = nanos / SECOND, .tv_nsec = nanos % SECOND};
}

/* What a clock of this host shows. */
static int64_t clock_shows(clockid_t clock)
{
    const struct host *it = &page->hosts[host];
    int64_t passed = (int64_t)page->now - it->base;
    passed += (int64_t)((__int128)passed * it->gains / SECOND);
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return it->realtime + passed;
    case CLOCK_BOOTTIME:
        return it->boottime + passed;
    default:
        return it->monotonic + passed;
    }
}

/* The turn. While a thread does not have it all signals are blocked, and they are delivered as it gets
 * it back: so it is the schedule that says when. */

static uint64_t block(void)
{
    uint64_t all = ~0ull, before;
    SYS(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, 8);
    return before;
}

/* What the kernel takes for struct sigaction. */
struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Whether a signal ends the process: then its turn ends first. */
static void deliver(uint64_t mask, int *interrupted)
{
    uint64_t pending = 0;
    int ends = 0;
    SYS(SYS_rt_sigpending, &pending, 8);
    pending &= ~mask;
    for (int signal = 1; pending && signal <= 64; signal++) {
        if (!(pending >> (signal - 1) & 1))
            continue;
        struct kernel_action action;
        SYS(SYS_rt_sigaction, signal, 0, &action, 8);
        if (action.handler == SIG_DFL) {
            if (signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT)
                continue;
            ends = 1;
        } else if (action.handler != SIG_IGN && interrupted) {
            *interrupted = 1;
        }
    }
    if (ends) {
        me->said = EXITS;
        set(&page->turn, 0);
    }
    SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
}

/* A signal that a thread no longer blocks may end its process: then the thread gives its turn back first. */
int pthread_sigmask(int how, const sigset_t *signals, sigset_t *old)
{
    static int (*real)(int, const sigset_t *, sigset_t *);
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_sigmask");
    if (!page || !me || !signals || (how != SIG_UNBLOCK && how != SIG_SETMASK))
        return real(how, signals, old);
    uint64_t given, mask = block();
    memcpy(&given, signals, sizeof given);
    if (old)
        memcpy(old, &mask, sizeof mask);
    deliver(how == SIG_UNBLOCK ? mask & ~given : given, NULL);
    return 0;
}

int sigprocmask(int how, const sigset_t *signals, sigset_t *old)
{
    int failed = pthread_sigmask(how, signals, old);
    return failed ? (errno = failed, -1) : 0;
}

/* Waits until the scheduler gives the turn; whether a handler ran. */
static int park(uint32_t waits, clockid_t clock, uint64_t deadline, uint64_t key)
{
    int interrupted = 0;
    uint64_t mask = block();
    me->waits = waits;
    me->clock = (uint32_t)clock;
    me->deadline = deadline;
    me->key = key;
    atomic_store(&me->state, PARKED);
    set(&page->turn, 0);
    wait_while(&me->go, 0);
    atomic_store(&me->go, 0);
    deliver(mask, &interrupted);
    return interrupted;
}

static int is_simulated(void)
{
    return page && me;
}

/* Anything that is asked of the system. */
static void point(void)
{
    if (!is_simulated())
        return;
    page->now += page->point;
    if (--me->quantum <= 0)
        park(TURN, 0, NEVER, 0);
}

/* Whether a signalfd is ready depends on which process asks: the scheduler, which cannot, wakes whoever has
 * a signal. No epoll here has one. */
static unsigned char asks_signals[1024];

static int is_for_signals(int fd)
{
    return fd >= 0 && fd < (int)sizeof asks_signals && asks_signals[fd];
}

static void mark_for_signals(int fd, int is_one)
{
    if (fd >= 0 && fd < (int)sizeof asks_signals)
        asks_signals[fd] = (unsigned char)is_one;
}

/* The numbers of this process's epolls, each its own in this world. The scheduler keeps a copy of each until it is
 * closed or its process has ended: that copy keeps open none of the descriptors that are in it. */
static uint32_t epolls[1024];

static uint32_t epoll_of(int fd)
{
    return fd >= 0 && fd < (int)(sizeof epolls / sizeof *epolls) ? epolls[fd] : 0;
}

static void mark_epoll(int fd, uint32_t number)
{
    if (fd >= 0 && fd < (int)(sizeof epolls / sizeof *epolls))
        epolls[fd] = number;
}

/* What another thread of this host may wait for is done here. */
static void stir(void)
{
    if (is_simulated())
        page->stirred = 1;
}

/* The same after reading, which makes room for those that write. */
static void drain(void)
{
    if (is_simulated() && page->full)
        page->stirred = 1;
}

/* Says something to the scheduler, and goes on when it has its turn again. */
static void tell(uint32_t what, uint64_t a, uint64_t b, uint64_t c)
{
    me->said = what;
    me->words[0] = a;
    me->words[1] = b;
    me->words[2] = c;
    park(TURN, 0, NEVER, 0);
}

/* The one at `index` is in use: whoever looks through all of them looks at least as far. */
static void use(uint32_t *used, int index)
{
    if (*used <= (uint32_t)index)
        *used = (uint32_t)index + 1;
}

static struct slot *slot_of(uint32_t pid)
{
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &page->slots[i];
        if (atomic_load(&slot->state) != FREE)
            continue;
        memset((void *)slot, 0, sizeof *slot);
        slot->pid = pid;
        slot->host = host;
        slot->waits = TURN;
        slot->deadline = NEVER;
        atomic_store(&slot->state, RUNNING);
        use(&page->slots_used, i);
        return slot;
    }
    static const char text[] = "the simulated world has no slot left\n";
    SYS(SYS_write, 2, text, sizeof text - 1);
    SYS(SYS_exit_group, 120);
    __builtin_unreachable();
}

/* A thread that has just begun waits for its first turn. `told`: the word by which others know. */
static void begin(struct slot *slot, _Atomic uint32_t *told)
{
    uint64_t mask = block();
    me = slot;
    slot->pid = (uint32_t)SYS(SYS_getpid, 0);
    slot->tid = (uint32_t)SYS(SYS_gettid, 0);
    SYS(SYS_prctl, 16 /* PR_GET_NAME */, slot->name);
    pthread_setspecific(ending, slot);
    atomic_store(&slot->state, PARKED);
    set(told, told == &slot->state ? PARKED : 0);
    wait_while(&slot->go, 0);
    atomic_store(&slot->go, 0);
    deliver(mask, NULL);
}

static void ended(void *slot)
{
    (void)slot;
    if (!is_simulated())
        return;
    block();
    struct slot *mine = me;
    me = NULL;
    atomic_store(&mine->state, ENDED);
    set(&page->turn, 0);
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("DISTLOCK_SIMULATED_PAGE");
    const char *number = getenv("DISTLOCK_SIMULATED_HOST");
    if (!path || !number)
        return;
    int fd = (int)SYS(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        _exit(121);
    void *at = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        _exit(122);
    pthread_key_create(&ending, ended);
    host = (uint32_t)atoi(number);
    struct page *mapped = at;
    uint32_t had_turn = !atomic_load(&mapped->spawning);
    page = at;
    struct slot *slot = slot_of((uint32_t)getpid());
    slot->said = EXECUTED;
    begin(slot, had_turn ? &page->turn : &page->spawning);
}

__attribute__((destructor)) static void finish(void)
{
    if (!is_simulated())
        return;
    block();
    me->said = EXITS;
    struct page *shared = page;
    page = NULL;
    set(&shared->turn, 0);
}

/* Processes and threads. */

void _exit(int status)
{
    finish();
    SYS(SYS_exit_group, status);
    __builtin_unreachable();
}

void _Exit(int status) __attribute__((alias("_exit")));

void abort(void)
{
    uint64_t abort = 1ull << (SIGABRT - 1);
    struct kernel_action action = {0};
    finish();
    SYS(SYS_rt_sigaction, SIGABRT, &action, 0, 8);
    SYS(SYS_rt_sigprocmask, SIG_UNBLOCK, &abort, 0, 8);
    SYS(SYS_tgkill, SYS(SYS_getpid, 0), SYS(SYS_gettid, 0), SIGABRT);
    SYS(SYS_exit_group, 127);
    __builtin_unreachable();
}

/* A child has the timers that its parent has open at the fork. */
static void bequeath_timers(uint32_t parent, uint32_t pid)
{
    for (int i = 0, to = 0, used = (int)page->timers_used; i < used; i++) {
        if (!page->timers[i].used || page->timers[i].pid != parent)
            continue;
        while (to < TIMERS && page->timers[to].used)
            to++;
        if (to == TIMERS)
            return;
        use(&page->timers_used, to);
        page->timers[to] = page->timers[i];
        page->timers[to].pid = pid;
        /* It goes off for both; the parent's is the one that does it. */
        page->timers[to].armed = 0;
    }
}

/* Makes a child that goes on from here, in its own memory, when it has the turn. */
static long forks(long (*make)(long, long), long a, long b)
{
    point();
    uint64_t mask = block();
    struct slot *slot = slot_of(0);
    long child = make(a, b);
    if (child == 0) {
        SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
        begin(slot, &slot->state);
        return 0;
    }
    if (child < 0)
        atomic_store(&slot->state, FREE);
    else {
        wait_while(&slot->state, RUNNING);
        bequeath_timers((uint32_t)SYS(SYS_getpid, 0), (uint32_t)child);
    }
    SYS(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
    return child;
}

static long make_fork(long a, long b)
{
    static pid_t (*real)(void);
    (void)a;
    (void)b;
    if (!real)
        real = dlsym(RTLD_NEXT, "fork");
    return real();
}

static long make_clone3(long args, long size)
{
    return SYS(SYS_clone3, args, size);
}

pid_t fork(void)
{
    return (pid_t)(is_simulated() ? forks(make_fork, 0, 0) : make_fork(0, 0));
}

pid_t vfork(void)
{
    return fork();
}

/* The child of a posix_spawn has begun, and waits for its turn, before the parent goes on. */
static int spawned(int failed)
{
    if (is_simulated()) {
        if (failed)
            atomic_store(&page->spawning, 0);
        wait_while(&page->spawning, 1);
    }
    return failed;
}

#define SPAWN(name) \
    int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, \
             const posix_spawnattr_t *attr, char *const argv[], char *const envp[]) \
    { \
        static int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, \
                           const posix_spawnattr_t *, char *const[], char *const[]); \
        if (!real) \
            real = dlsym(RTLD_NEXT, #name); \
        point(); \
        if (is_simulated()) \
            atomic_store(&page->spawning, 1); \
        return spawned(real(pid, path, actions, attr, argv, envp)); \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)
SPAWN(pidfd_spawnp)

struct work {
    void *(*run)(void *);
    void *arg;
    struct slot *slot;
};

static void *runs(void *arg)
{
    struct work work = *(struct work *)arg;
    free(arg);
    begin(work.slot, &work.slot->state);
    return work.run(work.arg);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_create");
    if (!is_simulated())
        return real(thread, attr, run, arg);
    point();
    struct work *work = malloc(sizeof *work);
    if (!work)
        return EAGAIN;
    struct slot *slot = slot_of(0);
    *work = (struct work){run, arg, slot};
    int failed = real(thread, attr, runs, work);
    if (failed) {
        free(work);
        atomic_store(&slot->state, FREE);
        return failed;
    }
    slot->words[3] = (uint64_t)*thread;
    wait_while(&slot->state, RUNNING);
    return 0;
}

int pthread_join(pthread_t thread, void **value)
{
    static int (*real)(pthread_t, void **);
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_join");
    if (is_simulated()) {
        uint32_t pid = (uint32_t)SYS(SYS_getpid, 0);
        for (uint32_t i = 0; i < page->slots_used; i++) {
            struct slot *slot = &page->slots[i];
            uint32_t state = atomic_load(&slot->state);
            if ((state == PARKED || state == RUNNING) && slot->pid == pid
                && slot->words[3] == (uint64_t)thread)
                park(JOIN, 0, NEVER, (uint64_t)i);
        }
    }
    return real(thread, value);
}

/* Clocks. */

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!is_simulated() || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return (int)result(SYS(SYS_clock_gettime, clock, time));
    *time = spec(clock_shows(clock));
    point();
    return 0;
}

int sched_yield(void)
{
    if (!is_simulated())
        return (int)SYS(SYS_sched_yield, 0);
    page->now += page->point;
    park(TURN, 0, NEVER, 0);
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    if (!is_simulated())
        return (int)-SYS(SYS_clock_nanosleep, clock, flags, time, left);
    int64_t until = nanos(time) + (flags & TIMER_ABSTIME ? 0 : clock_shows(clock));
    while (clock_shows(clock) < until)
        if (park(SLEEP, clock, (uint64_t)until, 0)) {
            if (left && !(flags & TIMER_ABSTIME))
                *left = spec(until > clock_shows(clock) ? until - clock_shows(clock) : 0);
            return EINTR;
        }
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    int failed = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    return failed ? (errno = failed, -1) : 0;
}

int timerfd_create(int clock, int flags)
{
    point();
    if (!is_simulated())
        return (int)result(SYS(SYS_timerfd_create, clock, flags));
    int fd = eventfd(0, flags & (EFD_CLOEXEC | EFD_NONBLOCK));
    if (fd < 0)
        return fd;
    for (int i = 0; i < TIMERS; i++) {
        struct timer *timer = &page->timers[i];
        if (timer->used)
            continue;
        uint32_t pid = (uint32_t)SYS(SYS_getpid, 0);
        use(&page->timers_used, i);
        *timer = (struct timer){.pid = pid, .fd = (uint32_t)fd, .host = host, .clock = (uint32_t)clock, .used = 1};
        return fd;
    }
    close(fd);
    errno = EMFILE;
    return -1;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
    point();
    if (!is_simulated())
        return (int)result(SYS(SYS_timerfd_settime, fd, flags, value, old));
    uint32_t pid = (uint32_t)SYS(SYS_getpid, 0);
    struct timer *timer = NULL;
    /* The latest of that number: the ones before are closed. */
    for (uint32_t i = 0; i < page->timers_used; i++)
        if (page->timers[i].used && page->timers[i].pid == pid && page->timers[i].fd == (uint32_t)fd)
            timer = &page->timers[i];
    if (!timer) {
        errno = EBADF;
        return -1;
    }
    uint64_t count;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (SYS(SYS_poll, &ready, 1, 0) == 1)
        SYS(SYS_read, fd, &count, 8);
    int64_t at = nanos(&value->it_value);
    timer->armed = at != 0;
    timer->deadline = (uint64_t)(at + (flags & TFD_TIMER_ABSTIME ? 0 : clock_shows((clockid_t)timer->clock)));
    if (timer->armed && clock_shows((clockid_t)timer->clock) >= (int64_t)timer->deadline) {
        uint64_t one = 1;
        timer->armed = 0;
        SYS(SYS_write, fd, &one, 8);
        stir();
    }
    return 0;
}

int close(int fd)
{
    if (is_simulated()) {
        uint32_t pid = (uint32_t)SYS(SYS_getpid, 0);
        for (uint32_t i = 0; i < page->timers_used; i++)
            if (page->timers[i].pid == pid && page->timers[i].fd == (uint32_t)fd)
                page->timers[i].used = 0;
        point();
        stir();
    }
    mark_for_signals(fd, 0);
    uint32_t number = epoll_of(fd);
    mark_epoll(fd, 0);
    if (is_simulated() && number) {
        while (page->closed == CLOSED)
            park(TURN, 0, NEVER, 0);
        page->closed_epolls[page->closed++] = number;
    }
    return (int)result(SYS(SYS_close, fd));
}

/* Chance. */

ssize_t getrandom(void *buffer, size_t len, unsigned flags)
{
    if (!is_simulated())
        return result(SYS(SYS_getrandom, buffer, len, flags));
    unsigned char *bytes = buffer;
    for (size_t i = 0; i < len; i++) {
        uint64_t z = page->hosts[host].random += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        bytes[i] = (unsigned char)(z ^ z >> 31);
    }
    return (ssize_t)len;
}

/* Waiting for descriptors. */

/* When a wait of so many milliseconds is over. */
static uint64_t until(int timeout)
{
    if (timeout < 0)
        return NEVER;
    return (uint64_t)(clock_shows(CLOCK_MONOTONIC) + timeout * (SECOND / 1000));
}

/* Tries again what could not be done yet, since none of `fds` is ready, if these are why: whether to. */
static int again(const struct pollfd *fds, nfds_t count, uint64_t deadline, int *interrupted)
{
    if (deadline != NEVER && (uint64_t)clock_shows(CLOCK_MONOTONIC) >= deadline)
        return 0;
    me->waits_for = fds && count <= WAITED;
    for (nfds_t i = 0; me->waits_for && i < count; i++)
        if (!is_for_signals(fds[i].fd))
            me->fds[me->waits_for++ - 1] = fds[i];
    *interrupted = park(RETRY, CLOCK_MONOTONIC, deadline, 0);
    return !*interrupted;
}

int signalfd(int fd, const sigset_t *mask, int flags)
{
    point();
    fd = (int)result(SYS(SYS_signalfd4, fd, mask, 8, flags));
    mark_for_signals(fd, 1);
    return fd;
}

/* No point: nobody can tell one moment around it from another. */
int epoll_create1(int flags)
{
    int fd = (int)result(SYS(SYS_epoll_create1, flags));
    if (is_simulated())
        mark_epoll(fd, ++page->epolls);
    return fd;
}

int epoll_ctl(int fd, int what, int of, struct epoll_event *event)
{
    point();
    stir();
    if (what == EPOLL_CTL_ADD && is_for_signals(of))
        _exit(123);
    return (int)result(SYS(SYS_epoll_ctl, fd, what, of, event));
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    point();
    taken = 0;
    if (!is_simulated())
        return (int)result(SYS(SYS_epoll_wait, fd, events, most, timeout));
    uint64_t deadline = until(timeout);
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int interrupted = 0;
    for (;;) {
        long done = SYS(SYS_epoll_wait, fd, events, most, 0);
        if (done != 0 || timeout == 0)
            return (int)result(done);
        me->epoll = epoll_of(fd);
        int is_over = !again(&one, 1, deadline, &interrupted);
        me->epoll = 0;
        if (is_over)
            return interrupted ? (errno = EINTR, -1) : 0;
    }
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    (void)mask;
    return epoll_wait(fd, events, most, timeout);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    point();
    if (!is_simulated())
        return (int)result(SYS(SYS_poll, fds, count, timeout));
    uint64_t deadline = until(timeout);
    int interrupted = 0;
    for (;;) {
        long done = SYS(SYS_poll, fds, count, 0);
        if (done != 0 || timeout == 0)
            return (int)result(done);
        if (!again(fds, count, deadline, &interrupted))
            return interrupted ? (errno = EINTR, -1) : 0;
    }
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    if (!is_simulated())
        return (int)result(SYS(SYS_ppoll, fds, count, timeout, mask, 8));
    int64_t millis = timeout ? (nanos(timeout) + 999999) / 1000000 : -1;
    return poll(fds, count, millis > INT32_MAX ? INT32_MAX : (int)millis);
}

/* When a call on `fd`, if that is a socket, waits no longer. */
static uint64_t patience(int fd, int option)
{
    struct timeval most;
    socklen_t len = sizeof most;
    if (SYS(SYS_getsockopt, fd, SOL_SOCKET, option, &most, &len) || (!most.tv_sec && !most.tv_usec))
        return NEVER;
    return (uint64_t)(clock_shows(CLOCK_MONOTONIC) + most.tv_sec * SECOND + most.tv_usec * 1000);
}

/* Waits until `fd` is ready, if the calls on it block. */
static int ready(int fd, short events)
{
    if (!is_simulated() || SYS(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK)
        return 1;
    struct pollfd one = {.fd = fd, .events = events};
    int interrupted = 0;
    uint64_t deadline = patience(fd, events == POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO);
    page->full |= events == POLLOUT;
    while (SYS(SYS_poll, &one, 1, 0) == 0)
        if (!again(&one, 1, deadline, &interrupted))
            return errno = interrupted ? EINTR : EAGAIN, 0;
    return 1;
}

/* Whether the disk of this host fails what is asked of it: one that is full still keeps what it has. */
static int disk_fails(int fd, int is_sync)
{
    struct stat about;
    uint32_t error = is_simulated() ? page->hosts[host].disk_error : 0;
    if (!error || fd <= 2 || (is_sync ? error == ENOSPC : page->hosts[host].fails_at_sync_only))
        return 0;
    if (fstat(fd, &about) || !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)))
        return 0;
    /* That is memory. */
    if (!about.st_nlink)
        return 0;
    errno = (int)error;
    return 1;
}

/* The same of a name in the agent's state, which may take room. */
static int directory_fails(const char *path, int takes_room)
{
    uint32_t error = is_simulated() ? page->hosts[host].disk_error : 0;
    if (!error || page->hosts[host].fails_at_sync_only || (error == ENOSPC && !takes_room))
        return 0;
    if (!strstr(path, "/state/"))
        return 0;
    errno = (int)error;
    return 1;
}

#define READS(type, name, call, done, params, ...) \
    type name params \
    { \
        point(); \
        return ready(fd, POLLIN) ? (done(), (type)result(SYS(call, fd, __VA_ARGS__))) : -1; \
    }
#define WRITES(type, name, call, params, ...) \
    type name params \
    { \
        point(); \
        if (disk_fails(fd, 0)) \
            return -1; \
        return ready(fd, POLLOUT) ? (stir(), (type)result(SYS(call, fd, __VA_ARGS__))) : -1; \
    }
READS(ssize_t, read, SYS_read, drain, (int fd, void *to, size_t len), to, len)
READS(ssize_t, readv, SYS_readv, drain, (int fd, const struct iovec *to, int count), to, count)
READS(int, accept4, SYS_accept4, stir, (int fd, struct sockaddr *of, socklen_t *len, int flags), of, len, flags)
ssize_t pread64(int fd, void *to, size_t len, off64_t at)
{
    point();
    return (ssize_t)result(SYS(SYS_pread64, fd, to, len, at));
}

ssize_t pread(int fd, void *to, size_t len, off_t at) __attribute__((alias("pread64")));

ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at)
{
    point();
    return disk_fails(fd, 0) ? -1 : (ssize_t)result(SYS(SYS_pwrite64, fd, from, len, at));
}

WRITES(ssize_t, write, SYS_write, (int fd, const void *from, size_t len), from, len)
WRITES(ssize_t, writev, SYS_writev, (int fd, const struct iovec *from, int count), from, count)

/* What blocks by itself is tried without. */
#define TRIES(type, name, params, test, attempt) \
    type name params \
    { \
        point(); \
        int interrupted; \
        for (;;) { \
            long done = attempt; \
            if (!is_simulated() || !(test)) { \
                stir(); \
                return (type)result(done); \
            } \
            if (!again(NULL, 0, NEVER, &interrupted)) \
                return errno = EINTR, -1; \
        } \
    }
TRIES(int, flock, (int fd, int what), done == -EWOULDBLOCK && !(what & LOCK_NB),
      SYS(SYS_flock, fd, what | (is_simulated() ? LOCK_NB : 0)))
TRIES(pid_t, waitpid, (pid_t pid, int *status, int flags), done == 0 && !(flags & WNOHANG),
      SYS(SYS_wait4, pid, status, flags | (is_simulated() ? WNOHANG : 0), 0))
/* Of a child that is not there yet, waitid says nothing in its record. */
TRIES(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int flags),
      done == 0 && !(flags & WNOHANG) && info->si_pid == 0,
      (info->si_pid = 0, SYS(SYS_waitid, type, id, info, flags | (is_simulated() ? WNOHANG : 0), 0)))

int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    long arg = va_arg(list, long);
    va_end(list);
    point();
    int attempt = command;
    if (is_simulated() && command == F_SETLKW)
        attempt = F_SETLK;
    if (is_simulated() && command == F_OFD_SETLKW)
        attempt = F_OFD_SETLK;
    for (;;) {
        long done = SYS(SYS_fcntl, fd, attempt, arg);
        int interrupted = 0;
        if (attempt == command || (done != -EAGAIN && done != -EACCES)) {
            if (attempt == F_SETLK || attempt == F_OFD_SETLK)
                stir();
            return (int)result(done);
        }
        /* What counts executed lines has such a lock, also on another host, of which nobody here is told. */
        again(NULL, 0, until(1), &interrupted);
        if (interrupted)
            return errno = EINTR, -1;
    }
}

int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

static long signals(long number, long a, long b, long c, long d);

/* Futexes, on which the standard library's mutexes and condition variables rest, and by which processes that
   share memory wake each other. */

/* In a key: of memory that processes share. */
static const uint64_t SHARED = UINT64_C(1) << 63;

static int hex(char digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static uint64_t number_at(const char **text, int base)
{
    uint64_t number = 0;
    for (int digit; (digit = hex(**text)) >= 0 && digit < base; ++*text)
        number = number * (uint64_t)base + (uint64_t)digit;
    return number;
}

/* What two processes call the same word of a file that both have mapped: its file and place there. A line of
   /proc/self/maps is "start-end access offset device inode name". */
static uint64_t shared_key(const uint32_t *word)
{
    char text[4096 + 1];
    size_t have = 0;
    uint64_t at = (uint64_t)word, key = at;
    long fd = SYS(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return key;
    for (long got; (got = SYS(SYS_read, fd, text + have, 4096 - have)) > 0;) {
        have += (size_t)got;
        text[have] = 0;
        const char *line = text;
        for (const char *end; (end = memchr(line, '\n', have - (size_t)(line - text))); line = end + 1) {
            const char *next = line;
            uint64_t start = number_at(&next, 16);
            next++;
            uint64_t stop = number_at(&next, 16);
            if (at < start || at >= stop)
                continue;
            next += strlen(" rw-s ");
            uint64_t offset = number_at(&next, 16);
            next++;
            uint64_t device = number_at(&next, 16);
            next++;
            device = device << 8 | number_at(&next, 16);
            next++;
            uint64_t inode = number_at(&next, 10);
            if (inode)
                key = SHARED | (device * 31 + inode) << 32 | (offset + at - start);
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
    }
    SYS(SYS_close, fd);
    return key;
}

static long wake(uint64_t key, int most)
{
    uint32_t pid = me->pid;
    int woken = 0;
    for (uint32_t i = 0; i < page->slots_used && woken < most; i++) {
        struct slot *slot = &page->slots[i];
        if (atomic_load(&slot->state) != PARKED || slot->waits != FUTEX || slot->key != key)
            continue;
        if (slot->pid != pid && !(key & SHARED))
            continue;
        slot->waits = TURN;
        slot->woken = GO;
        woken++;
    }
    return woken;
}

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    clockid_t clock = op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    int command = op & FUTEX_CMD_MASK;
    uint64_t key = op & FUTEX_PRIVATE_FLAG ? (uint64_t)word : shared_key(word);
    switch (command) {
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
        return wake(key, (int)value);
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
        if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value)
            return -EAGAIN;
        uint64_t deadline = NEVER;
        if (timeout)
            deadline = (uint64_t)(nanos(timeout) + (command == FUTEX_WAIT ? clock_shows(clock) : 0));
        me->woken = LATE;
        if (park(FUTEX, clock, deadline, key))
            return -EINTR;
        return me->woken == GO ? 0 : -ETIMEDOUT;
    }
    default:
        return -ENOSYS;
    }
}

long syscall(long number, ...)
{
    long args[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        args[i] = va_arg(list, long);
    va_end(list);
    if (is_simulated()) {
        point();
        if (number == SYS_futex)
            return result(futex((uint32_t *)args[0], (int)args[1], (uint32_t)args[2], (void *)args[3]));
        if (number == SYS_pidfd_send_signal || number == SYS_tgkill)
            return signals(number, args[0], args[1], args[2], args[3]);
        if (number == SYS_clone3)
            return result(forks(make_clone3, args[0], args[1]));
        if (number == SYS_getrandom)
            return getrandom((void *)args[0], (size_t)args[1], (unsigned)args[2]);
    }
    return result(sys(number, args[0], args[1], args[2], args[3], args[4], args[5]));
}

/* Signals: the process that sends one itself gets it at once, and whoever else is to end has ended when
 * this returns. */

static long signals(long number, long a, long b, long c, long d)
{
    if (!is_simulated())
        return result(SYS(number, a, b, c, d));
    point();
    uint64_t mask = block();
    long done = SYS(number, a, b, c, d);
    deliver(mask, NULL);
    tell(SIGNALLED, 0, 0, 0);
    return result(done);
}

int kill(pid_t pid, int signal)
{
    return (int)signals(SYS_kill, pid, signal, 0, 0);
}

int killpg(pid_t group, int signal)
{
    return (int)signals(SYS_kill, -group, signal, 0, 0);
}

int raise(int signal)
{
    return (int)signals(SYS_tgkill, SYS(SYS_getpid, 0), SYS(SYS_gettid, 0), signal, 0);
}

/* Files, as far as a power cut has to know them. */

static int synced(int fd, long number)
{
    point();
    if (!is_simulated())
        return (int)result(SYS(number, fd));
    /* It takes its time; then all that was written until now is on disk. */
    tell(SYNCS, (uint64_t)fd, 0, 0);
    uint64_t until = me->words[0];
    while (clock_shows(CLOCK_MONOTONIC) < (int64_t)until)
        park(SLEEP, CLOCK_MONOTONIC, until, 0);
    if (disk_fails(fd, 1)) {
        int error = errno;
        tell(UNSYNCED, (uint64_t)fd, 0, 0);
        return errno = error, -1;
    }
    tell(SYNCED, (uint64_t)fd, 0, 0);
    return 0;
}

int fsync(int fd)
{
    return synced(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, SYS_fdatasync);
}

#define NAMES(name, call, path, takes_room, params, ...) \
    int name params \
    { \
        point(); \
        if (directory_fails(path, takes_room)) \
            return -1; \
        stir(); \
        return (int)result(SYS(call, __VA_ARGS__)); \
    }
NAMES(rename, SYS_rename, one, 0, (const char *one, const char *other), one, other)
NAMES(renameat, SYS_renameat, one, 0, (int dir, const char *one, int to, const char *other), dir, one, to, other)
NAMES(renameat2, SYS_renameat2, one, 0, (int dir, const char *one, int to, const char *other, unsigned flags),
      dir, one, to, other, flags)
NAMES(unlink, SYS_unlink, path, 0, (const char *path), path)
NAMES(unlinkat, SYS_unlinkat, path, 0, (int dir, const char *path, int flags), dir, path, flags)
NAMES(rmdir, SYS_rmdir, path, 0, (const char *path), path)
NAMES(link, SYS_link, other, 1, (const char *one, const char *other), one, other)
NAMES(linkat, SYS_linkat, other, 1, (int dir, const char *one, int to, const char *other, int flags),
      dir, one, to, other, flags)
NAMES(mkdir, SYS_mkdir, path, 1, (const char *path, mode_t mode), path, mode)
NAMES(mkdirat, SYS_mkdirat, path, 1, (int dir, const char *path, mode_t mode), dir, path, mode)
NAMES(mkfifo, SYS_mknod, path, 1, (const char *path, mode_t mode), path, mode | S_IFIFO, 0)
NAMES(mkfifoat, SYS_mknodat, path, 1, (int dir, const char *path, mode_t mode), dir, path, mode | S_IFIFO, 0)

int ftruncate(int fd, off_t len)
{
    struct stat about;
    point();
    /* A disk that is full has room for less. */
    int grows = fstat(fd, &about) || len > about.st_size;
    if (disk_fails(fd, 0) && (grows || errno != ENOSPC))
        return -1;
    return (int)result(SYS(SYS_ftruncate, fd, len));
}

int ftruncate64(int fd, off64_t len) __attribute__((alias("ftruncate")));

int fallocate(int fd, int mode, off_t at, off_t len)
{
    point();
    if (disk_fails(fd, 0))
        return -1;
    return (int)result(SYS(SYS_fallocate, fd, mode, at, len));
}

/* What the kernel says of its boot is the host's own. */
static int opens(int dir, const char *path, int flags, mode_t mode)
{
    point();
    if (flags & O_CREAT && SYS(SYS_faccessat, dir, path, F_OK) && directory_fails(path, 1))
        return -1;
    const char *own = getenv("DISTLOCK_SIMULATED_BOOT");
    if (is_simulated() && own && !strcmp(path, "/proc/sys/kernel/random/boot_id"))
        path = own;
    stir();
    return (int)result(SYS(SYS_openat, dir, path, flags, mode));
}

#define OPENS(name, params, dir) \
    int name params \
    { \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
        va_end(list); \
        return opens(dir, path, flags, mode); \
    }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat, (int dir, const char *path, int flags, ...), dir)
OPENS(openat64, (int dir, const char *path, int flags, ...), dir)

/* Datagrams: a UDP socket is a Unix one here, whose abstract name is its address. What it sends goes to
 * the scheduler, which hands it to the socket of that name, behind six bytes: from whom it comes. */

static const char PREFIX[] = "distlock-udp:";
enum { HEAD = 6 };

static socklen_t named(struct sockaddr_un *name, uint32_t address, uint16_t port)
{
    static const char digits[] = "0123456789abcdef";
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    char *at = name->sun_path + 1;
    memcpy(at, PREFIX, sizeof PREFIX - 1);
    at += sizeof PREFIX - 1;
    uint64_t both = (uint64_t)ntohl(address) << 16 | ntohs(port);
    for (int i = 11; i >= 0; i--)
        *at++ = digits[both >> (4 * i) & 15];
    return (socklen_t)(at - (char *)name);
}

/* Whether `fd` is a UDP socket, and its address. */
static int is_udp(int fd, uint32_t *address, uint16_t *port)
{
    struct sockaddr_un name = {0};
    socklen_t len = sizeof name;
    if (!is_simulated() || SYS(SYS_getsockname, fd, &name, &len) || name.sun_family != AF_UNIX)
        return 0;
    if (memcmp(name.sun_path + 1, PREFIX, sizeof PREFIX - 1))
        return 0;
    uint64_t both = 0;
    const char *at = name.sun_path + sizeof PREFIX;
    for (int i = 0; i < 12; i++)
        both = both << 4 | (uint64_t)(at[i] <= '9' ? at[i] - '0' : at[i] - 'a' + 10);
    *address = htonl((uint32_t)(both >> 16));
    *port = htons((uint16_t)both);
    return 1;
}

int socket(int domain, int type, int protocol)
{
    point();
    if (is_simulated() && domain == AF_INET && (type & 15) == SOCK_DGRAM)
        return (int)result(SYS(SYS_socket, AF_UNIX, type, 0));
    return (int)result(SYS(SYS_socket, domain, type, protocol));
}

int bind(int fd, const struct sockaddr *to, socklen_t len)
{
    point();
    if (!is_simulated() || to->sa_family != AF_INET)
        return (int)result(SYS(SYS_bind, fd, to, len));
    struct sockaddr_in in = *(const struct sockaddr_in *)to;
    if (!in.sin_port)
        in.sin_port = htons((uint16_t)(20000 + page->port++ % 40000));
    struct sockaddr_un name;
    len = named(&name, in.sin_addr.s_addr, in.sin_port);
    return (int)result(SYS(SYS_bind, fd, &name, len));
}

int getsockname(int fd, struct sockaddr *to, socklen_t *len)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    if (!is_udp(fd, &in.sin_addr.s_addr, &in.sin_port))
        return (int)result(SYS(SYS_getsockname, fd, to, len));
    memcpy(to, &in, *len < sizeof in ? *len : sizeof in);
    *len = sizeof in;
    return 0;
}

/* What is the network's is not the stand-in's: nor is a filter, which would look for headers. */
int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
    int is_of_network = level == IPPROTO_IP || level == IPPROTO_UDP
        || (level == SOL_SOCKET && option == SO_ATTACH_FILTER);
    if (is_simulated() && is_of_network)
        return 0;
    return (int)result(SYS(SYS_setsockopt, fd, level, option, value, len));
}

/* A thread may stand still right after it has sent something, so that the receiver acts before the sender's next step. */
static ssize_t sent(ssize_t len)
{
    int error = errno;
    if (is_simulated())
        me->sent = 1;
    point();
    if (is_simulated())
        me->sent = 0;
    errno = error;
    return len;
}

ssize_t sendmsg(int fd, const struct msghdr *header, int flags)
{
    point();
    const struct sockaddr_in *to = header->msg_name;
    uint32_t address;
    uint16_t port;
    if (!is_simulated() || !to || to->sin_family != AF_INET) {
        if (!(flags & MSG_DONTWAIT) && !ready(fd, POLLOUT))
            return -1;
        stir();
        return sent(result(SYS(SYS_sendmsg, fd, header, flags)));
    }
    if (!is_udp(fd, &address, &port))
        return errno = EDESTADDRREQ, -1;
    while (page->sent == PARCELS)
        park(TURN, 0, NEVER, 0);
    struct parcel *parcel = &page->parcels[page->sent];
    size_t len = 0;
    for (size_t i = 0; i < header->msg_iovlen; i++) {
        size_t part = header->msg_iov[i].iov_len;
        if (len + part > ROOM - HEAD)
            return errno = EMSGSIZE, -1;
        memcpy(parcel->data + HEAD + len, header->msg_iov[i].iov_base, part);
        len += part;
    }
    memcpy(parcel->data, &address, 4);
    memcpy(parcel->data + 4, &port, 2);
    parcel->from = address;
    parcel->from_port = port;
    parcel->to = to->sin_addr.s_addr;
    parcel->to_port = to->sin_port;
    parcel->host = host;
    parcel->at = page->now;
    parcel->len = (uint32_t)(len + HEAD);
    page->sent++;
    return sent((ssize_t)len);
}

ssize_t sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec part = {.iov_base = (void *)from, .iov_len = len};
    struct msghdr header = {.msg_name = (void *)to, .msg_namelen = to_len, .msg_iov = &part, .msg_iovlen = 1};
    return sendmsg(fd, &header, flags);
}

ssize_t send(int fd, const void *from, size_t len, int flags)
{
    return sendto(fd, from, len, flags, NULL, 0);
}

/* Calls that never block, and that others may have waited for. */
#define STIRS(name, call, params, ...) \
    int name params \
    { \
        point(); \
        stir(); \
        return (int)result(SYS(call, __VA_ARGS__)); \
    }

/* It would wait where many others wait to be accepted. */
int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    point();
    stir();
    long flags = SYS(SYS_fcntl, fd, F_GETFL);
    if (!is_simulated() || to->sa_family != AF_UNIX || flags & O_NONBLOCK)
        return (int)result(SYS(SYS_connect, fd, to, len));
    uint64_t deadline = patience(fd, SO_SNDTIMEO);
    int interrupted = 0;
    for (;;) {
        SYS(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
        long done = SYS(SYS_connect, fd, to, len);
        SYS(SYS_fcntl, fd, F_SETFL, flags);
        if (done != -EAGAIN)
            return (int)result(done);
        if (!again(NULL, 0, deadline, &interrupted))
            return errno = interrupted ? EINTR : EAGAIN, -1;
    }
}
STIRS(listen, SYS_listen, (int fd, int backlog), fd, backlog)
STIRS(shutdown, SYS_shutdown, (int fd, int how), fd, how)

int dup(int fd)
{
    point();
    int to = (int)result(SYS(SYS_dup, fd));
    mark_for_signals(to, is_for_signals(fd));
    mark_epoll(to, 0);
    return to;
}

int dup2(int fd, int to)
{
    point();
    stir();
    mark_for_signals(to, is_for_signals(fd));
    mark_epoll(to, 0);
    return (int)result(SYS(SYS_dup2, fd, to));
}

ssize_t recvmsg(int fd, struct msghdr *header, int flags)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    int of_udp = is_udp(fd, &from.sin_addr.s_addr, &from.sin_port);
    if (is_simulated() && of_udp)
        me->taken = taken;
    point();
    if (is_simulated())
        me->taken = 0;
    if (!(flags & MSG_DONTWAIT) && !ready(fd, POLLIN))
        return -1;
    drain();
    if (!of_udp)
        return result(SYS(SYS_recvmsg, fd, header, flags));
    unsigned char bytes[ROOM];
    long got = SYS(SYS_recvfrom, fd, bytes, sizeof bytes, flags & ~MSG_TRUNC, 0, 0);
    if (got < HEAD)
        return got < 0 ? result(got) : (errno = EAGAIN, -1);
    taken++;
    memcpy(&from.sin_addr.s_addr, bytes, 4);
    memcpy(&from.sin_port, bytes + 4, 2);
    size_t len = (size_t)got - HEAD, at = 0;
    for (size_t i = 0; i < header->msg_iovlen && at < len; i++) {
        size_t part = header->msg_iov[i].iov_len < len - at ? header->msg_iov[i].iov_len : len - at;
        memcpy(header->msg_iov[i].iov_base, bytes + HEAD + at, part);
        at += part;
    }
    if (header->msg_name) {
        memcpy(header->msg_name, &from, header->msg_namelen < sizeof from ? header->msg_namelen : sizeof from);
        header->msg_namelen = sizeof from;
    }
    header->msg_controllen = 0;
    header->msg_flags = at < len ? MSG_TRUNC : 0;
    return (ssize_t)(flags & MSG_TRUNC ? len : at);
}

ssize_t recvfrom(int fd, void *to, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    struct iovec part = {.iov_base = to, .iov_len = len};
    struct msghdr header = {.msg_name = from, .msg_namelen = from_len ? *from_len : 0, .msg_iov = &part, .msg_iovlen = 1};
    ssize_t got = recvmsg(fd, &header, flags);
    if (got >= 0 && from_len)
        *from_len = header.msg_namelen;
    return got;
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
    return recvfrom(fd, to, len, flags, NULL, NULL);
}

/* What the judge asks of a program: a thread of it waits here, and answers while all others stand. */

int distlock_simulated_judge_asks(void)
{
    if (!is_simulated())
        return 0;
    park(ASKED, 0, NEVER, 0);
    return 1;
}

/* What a program tells the judge. */
void distlock_simulated_tell(uint64_t what, uint64_t a, uint64_t b)
{
    if (is_simulated())
        tell(TOLD, what, a, b);
}
