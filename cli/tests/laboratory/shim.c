/* The clocks and the disk of one host of the laboratory, as the host's page has them. The wall clock is ahead
 * of the system's by so many seconds. CLOCK_BOOTTIME, by which leases are measured, gains from some time on,
 * and so do its timers: the program has no other timerfd. fsync(2) takes so much longer. All else is the
 * system's. Loaded before the C library; see shim.rs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;

struct page {
    /* The wall clock, in seconds. */
    _Atomic int64_t ahead;
    /* How often it was looked at. */
    _Atomic uint64_t asked;
    /* By how many thousandths CLOCK_BOOTTIME gains; 0 if it does not. */
    _Atomic int64_t gain;
    /* Since when, in nanoseconds of the system's CLOCK_BOOTTIME. It is there before `gain` is. */
    _Atomic int64_t since;
    /* How much longer fsync(2) takes, in milliseconds. */
    _Atomic int64_t sync;
};

static struct page *page;

__attribute__((constructor)) static void find_page(void)
{
    const char *path = getenv("DISTLOCK_LAB_PAGE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        abort();
    close(file);
}

/* Other libraries may ask before this one is ready. */
static time_t ahead(void)
{
    if (!page)
        return 0;
    atomic_fetch_add(&page->asked, 1);
    return (time_t)atomic_load(&page->ahead);
}

/* What CLOCK_BOOTTIME has gained when the system's shows `now`. */
static int64_t gained(int64_t now)
{
    int64_t gain = page ? atomic_load(&page->gain) : 0;
    int64_t since = gain ? atomic_load(&page->since) : 0;
    return gain && now > since ? (now - since) / 1000 * gain : 0;
}

/* What the system's CLOCK_BOOTTIME shows when this host's shows `here`. */
static int64_t real(int64_t here)
{
    int64_t gain = page ? atomic_load(&page->gain) : 0;
    int64_t since = gain ? atomic_load(&page->since) : 0;
    return gain && here > since ? since + (here - since) / (1000 + gain) * 1000 : here;
}

static int64_t nanos(struct timespec time)
{
    return time.tv_sec > INT64_MAX / SECOND - 1 ? INT64_MAX : time.tv_sec * SECOND + time.tv_nsec;
}

static struct timespec spec(int64_t nanos)
{
    struct timespec time = {.tv_sec = nanos / SECOND, .tv_nsec = nanos % SECOND};
    return time;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    if (!failed && clock == CLOCK_BOOTTIME)
        *now = spec(nanos(*now) + gained(nanos(*now)));
    return failed;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    struct itimerspec value = *new;
    /* Zero turns a timer off. */
    if ((flags & TFD_TIMER_ABSTIME) && nanos(value.it_value))
        value.it_value = spec(real(nanos(value.it_value)));
    return (int)syscall(SYS_timerfd_settime, fd, flags, &value, old);
}

int fsync(int file)
{
    struct timespec pause = spec(page ? atomic_load(&page->sync) * (SECOND / 1000) : 0);
    if (nanos(pause))
        nanosleep(&pause, NULL);
    return (int)syscall(SYS_fsync, file);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed)
        now->tv_sec += ahead();
    return failed;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
