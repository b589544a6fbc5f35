/* The wall clock of one host of the laboratory: the system's, and ahead of it by what the host's page
 * says. All other clocks are the system's. Loaded before the C library; see wall.rs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct page {
    _Atomic int64_t ahead;
    _Atomic uint64_t asked;
};

static struct page *page;

__attribute__((constructor)) static void find_page(void)
{
    const char *path = getenv("DISTLOCK_LAB_WALL");
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

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return failed;
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
