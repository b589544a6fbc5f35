/* What the C tests share. They are C99 and C++11 at once. */
#ifndef CHECK_H
#define CHECK_H

#include <distlock.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends the program if `condition` does not hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Ends the program if `call` does not return `expected`, a code of the library. */
#define EXPECT(expected, call)                                                                     \
    do {                                                                                           \
        int expect_got = (call);                                                                   \
        int expect_wanted = (expected);                                                            \
        if (expect_got != expect_wanted) {                                                         \
            fprintf(stderr, "%s:%d: %s is %d (%s), not %d (%s)\n", __FILE__, __LINE__, #call,      \
                    expect_got, distlock_strerror(expect_got), expect_wanted,                      \
                    distlock_strerror(expect_wanted));                                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
/* ThreadSanitizer does not see inside the library: what its locks order has to be said. */
#ifdef __cplusplus
extern "C" {
#endif
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#ifdef __cplusplus
}
#endif
#define ENTERED(lock) __tsan_acquire(lock)
#define LEAVING(lock) __tsan_release(lock)
#else
#define ENTERED(lock) (void)(lock)
#define LEAVING(lock) (void)(lock)
#endif

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until `pid` ends, in order. */
static inline void join_child(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A pipe as a signal between processes or threads: closing or writing raises it. */
typedef struct {
    int ends[2];
} flag;

static inline flag new_flag(void)
{
    flag made;
    CHECK(pipe(made.ends) == 0);
    return made;
}

static inline void raise_flag(flag raised)
{
    CHECK(write(raised.ends[1], "", 1) == 1);
}

static inline void await_flag(flag awaited)
{
    char byte;
    CHECK(read(awaited.ends[0], &byte, 1) == 1);
}

static inline void close_flag(flag closed)
{
    close(closed.ends[0]);
    close(closed.ends[1]);
}

/* Opens the local group, which $DISTLOCK_DIR names. */
static inline distlock_agent *open_local(void)
{
    distlock_agent *agent = NULL;
    CHECK(getenv("DISTLOCK_DIR") != NULL);
    EXPECT(0, distlock_agent_open(NULL, &agent));
    return agent;
}

static inline distlock_mutex *open_mutex(distlock_agent *agent, const char *name)
{
    distlock_mutex *mutex = NULL;
    EXPECT(0, distlock_mutex_open(agent, name, &mutex));
    return mutex;
}

static inline int is_readable(int fd, int timeout_ms)
{
    struct pollfd polled;
    polled.fd = fd;
    polled.events = POLLIN;
    polled.revents = 0;
    return poll(&polled, 1, timeout_ms) == 1;
}

#endif
