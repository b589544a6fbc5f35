/* A host that can be suspended: CLOCK_BOOTTIME, and timers of it, are ahead of the system's by what the
 * page says, in nanoseconds, and all other clocks, timers and timeouts are the system's. That is what a
 * process sees after a suspend: CLOCK_MONOTONIC stood still, and so did what sleeps by it, poll(2) and
 * futexes too, while a timer of CLOCK_BOOTTIME whose time has come goes off at once. Loaded before the
 * C library; see suspend.rs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 1024 };
static const int64_t SECOND = 1000000000;

struct page {
    _Atomic int64_t ahead;
    /* How many timers were set anew because of it. */
    _Atomic uint64_t moved;
};

static struct page *page;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* When each timer of CLOCK_BOOTTIME goes off, on the clock that the process sees; 0 while it is off. */
static int64_t due[MAX_FD];
static int is_boottime[MAX_FD];
/* The process in which the thread `wake` is: a forked child has none. */
static pid_t waker;

static int64_t nanos(struct timespec time)
{
    return time.tv_sec * SECOND + time.tv_nsec;
}

static struct timespec spec(int64_t nanos)
{
    struct timespec time = {.tv_sec = nanos / SECOND, .tv_nsec = nanos % SECOND};
    return time;
}

static int64_t ahead(void)
{
    return page ? atomic_load(&page->ahead) : 0;
}

static int set(int fd, int64_t at)
{
    /* What is over goes off at once. */
    int64_t real = at - ahead();
    struct itimerspec value = {.it_value = spec(at && real < 1 ? 1 : at ? real : 0)};
    return (int)syscall(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME, &value, NULL);
}

/* The kernel's part in waking up. */
static void *wake(void *unused)
{
    int64_t seen = ahead();
    for (;;) {
        struct timespec pause = {.tv_nsec = 500000};
        nanosleep(&pause, NULL);
        if (seen == ahead())
            continue;
        seen = ahead();
        pthread_mutex_lock(&mutex);
        for (int fd = 0; fd < MAX_FD; fd++)
            if (due[fd] && set(fd, due[fd]) == 0)
                atomic_fetch_add(&page->moved, 1);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    if (pthread_create(&thread, NULL, wake, NULL))
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    waker = getpid();
}

/* A child that executes nothing has timers of its own: `run`'s guardian. What its parent's thread held
 * at the fork nobody gives back here. */
static void start_in_child(void)
{
    pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    mutex = unlocked;
    memset(due, 0, sizeof due);
    start();
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DISTLOCK_TEST_BOOTTIME");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        abort();
    close(file);
    /* The command needs none of this. */
    unsetenv("LD_PRELOAD");
    start();
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_BOOTTIME)
        *now = spec(nanos(*now) + ahead());
    return failed;
}

int timerfd_create(int clock, int flags)
{
    int fd = (int)syscall(SYS_timerfd_create, clock, flags);
    if (fd >= MAX_FD)
        abort();
    if (fd >= 0) {
        pthread_mutex_lock(&mutex);
        is_boottime[fd] = clock == CLOCK_BOOTTIME;
        due[fd] = 0;
        pthread_mutex_unlock(&mutex);
    }
    return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    if (fd < 0 || fd >= MAX_FD || !is_boottime[fd])
        return (int)syscall(SYS_timerfd_settime, fd, flags, new, old);
    /* Nothing here sets any other. */
    if (!(flags & TFD_TIMER_ABSTIME) && nanos(new->it_value))
        abort();
    if (nanos(new->it_interval) || old)
        abort();
    if (waker != getpid())
        start_in_child();
    pthread_mutex_lock(&mutex);
    due[fd] = nanos(new->it_value);
    int failed = set(fd, due[fd]);
    pthread_mutex_unlock(&mutex);
    return failed;
}
