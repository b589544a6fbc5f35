/*
 * A lock in an event loop, here libuv's: the loop goes on while the program waits for the lock, and the
 * job stops when the lock is lost. libevent, GLib and epoll(7) poll the same two descriptors.
 *
 *     cc -std=c99 -o event_loop examples/event_loop.c $(pkg-config --cflags --libs distlock libuv)
 *     event_loop nightly 5     five steps of the job, a tenth of a second each
 */
#define _POSIX_C_SOURCE 200809L

#include <distlock.h>
#include <uv.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_MS 100

static distlock_agent *agent;
static distlock_mutex *mutex;
static uv_poll_t decided, lost;
static uv_timer_t ticker;
static int is_inside, waited, steps, code = 1;

static void finish(void)
{
    uv_stop(uv_default_loop());
}

/* Says what went wrong with a function of distlock, and ends the loop. */
static void fail(const char *what, int error)
{
    fprintf(stderr, "event_loop: %s: %s\n", what, distlock_strerror(error));
    finish();
}

/* The lock is lost: another may have begun, and this job must not go on. */
static void on_lost(uv_poll_t *handle, int status, int events)
{
    (void)handle, (void)status, (void)events;
    distlock_unlock(mutex);
    fprintf(stderr, "event_loop: the lock was lost, and the job stopped\n");
    finish();
}

/* What became of the request. */
static void on_decided(uv_poll_t *handle, int status, int events)
{
    uint64_t fence;
    int error;
    (void)status, (void)events;
    error = distlock_lock_poll(mutex, &fence);
    if (error == -EINPROGRESS) {
        return;
    }
    uv_poll_stop(handle);
    if (error != 0 && error != -EOWNERDEAD) {
        fail("cannot lock", error);
        return;
    }
    printf("inside after %d ticks, fence %" PRIu64 "\n", waited, fence);
    is_inside = 1;
    uv_poll_start(&lost, UV_READABLE, on_lost);
}

/* The program's own work: it goes on whether the lock is there or not. */
static void on_tick(uv_timer_t *timer)
{
    int error;
    (void)timer;
    if (!is_inside) {
        waited++;
        return;
    }
    /* That the lease is over the descriptor does not tell: so it is asked before each step. */
    if (distlock_is_held(mutex) != 1) {
        on_lost(&lost, 0, 0);
        return;
    }
    if (steps-- > 0) {
        printf("%d steps are left\n", steps);
        return;
    }
    error = distlock_unlock(mutex);
    if (error != 0) {
        fail("the job ended, and the lock may have been lost before", error);
        return;
    }
    code = 0;
    finish();
}

int main(int argc, char **argv)
{
    uv_loop_t *loop = uv_default_loop();
    int error;
    if (argc != 3 || (steps = atoi(argv[2])) <= 0) {
        fprintf(stderr, "Usage: event_loop LOCK STEPS\n");
        return 64;
    }
    if ((error = distlock_agent_open(NULL, &agent)) != 0 ||
        (error = distlock_mutex_open(agent, argv[1], &mutex)) != 0) {
        fprintf(stderr, "event_loop: %s: %s\n", argv[1], distlock_strerror(error));
        return 1;
    }
    uv_poll_init(loop, &decided, distlock_lock_fd(mutex));
    uv_poll_init(loop, &lost, distlock_lost_fd(mutex));
    uv_timer_init(loop, &ticker);
    uv_poll_start(&decided, UV_READABLE, on_decided);
    uv_timer_start(&ticker, on_tick, STEP_MS, STEP_MS);
    if ((error = distlock_lock_begin(mutex)) != 0) {
        fail("cannot lock", error);
    } else {
        uv_run(loop, UV_RUN_DEFAULT);
    }
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    return code;
}
