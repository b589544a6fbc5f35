/* Agents without a thread, driven by poll(2). The argument is an empty directory. */
#include "driven.h"

/* Processes until `waited` is readable, if that is not -1, or until the agent has something. */
static void process(distlock_agent *agent, int waited)
{
    struct pollfd polled[2];
    int64_t timeout = -2;
    do {
        polled[0].fd = distlock_agent_fd(agent);
        polled[1].fd = waited;
        polled[0].events = polled[1].events = POLLIN;
        polled[0].revents = polled[1].revents = 0;
        CHECK(polled[0].fd >= 0);
        CHECK(poll(polled, 2, 60000) > 0);
        EXPECT(0, distlock_agent_process(agent));
        EXPECT(0, distlock_agent_timeout(agent, &timeout));
        CHECK(timeout >= -1 && timeout <= LEASE_MS);
    } while (waited != -1 && polled[1].revents == 0);
}

/* How long the one member of a group may stand still. */
#define SHORT_LEASE_MS 1000

/* Enters by looking at its request, and counts how often it is not there yet. */
static int lock_by_events(distlock_agent *agent, distlock_mutex *mutex, uint64_t *fence)
{
    int looks = 0, code;
    EXPECT(-EINVAL, distlock_lock_poll(mutex, fence));
    EXPECT(0, distlock_lock_begin(mutex));
    EXPECT(-EALREADY, distlock_lock_begin(mutex));
    while ((code = distlock_lock_poll(mutex, fence)) == -EINPROGRESS) {
        process(agent, -1);
        looks++;
    }
    EXPECT(0, code);
    return looks;
}

/* A driven member takes turns with one that has a thread, by its own event loop and by functions
 * that wait, without a thread. */
static void takes_turns(void)
{
    flag done = new_flag(), over = new_flag();
    pid_t other = start_threaded(2, done, over);
    int threads = count_threads(), looks = 0, round;
    distlock_agent *agent = open_driven(1);
    distlock_mutex *mutex = open_mutex(agent, "counter");
    uint64_t fence = 0, last = 0;
    /* Until the group is there. */
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));
    for (round = 0; round < ROUNDS; round++) {
        if (round % 2 == 0) {
            looks += lock_by_events(agent, mutex, &fence);
            EXPECT(-EDEADLK, distlock_lock_begin(mutex));
        } else {
            EXPECT(0, distlock_timedlock(mutex, 60000, &fence));
        }
        CHECK(fence > last);
        last = fence;
        EXPECT(1, distlock_is_held(mutex));
        increment();
        EXPECT(0, distlock_unlock(mutex));
        EXPECT(-EINVAL, distlock_lock_poll(mutex, NULL));
    }
    CHECK(looks > 0);
    process(agent, done.ends[0]);
    CHECK(read_counter() == 2 * ROUNDS);
    CHECK(count_threads() == threads);

    /* What is withdrawn is not waited for, and closing withdraws too. */
    EXPECT(0, distlock_lock_begin(mutex));
    EXPECT(0, distlock_lock_cancel(mutex));
    EXPECT(0, distlock_lock_cancel(mutex));
    EXPECT(0, distlock_lock_begin(mutex));
    distlock_mutex_close(mutex);
    EXPECT(-EINVAL, distlock_lock_poll(mutex, NULL));
    mutex = open_mutex(agent, "counter");
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);

    raise_flag(over);
    distlock_agent_close(agent);
    join_child(other);
    close_flag(done);
    close_flag(over);
}

/* The only voter: who does not process for longer than the lease holds nothing. */
static void loses_its_lease(void)
{
    struct timespec long_time = {SHORT_LEASE_MS / 1000, 100000000};
    distlock_agent *agent = open_driven(1);
    distlock_mutex *mutex = open_mutex(agent, "x");
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(1, distlock_is_held(mutex));
    nanosleep(&long_time, NULL);
    EXPECT(0, distlock_is_held(mutex));
    /* It waits for an answer, and so processes: nobody was let in, or it is lost. */
    CHECK(distlock_unlock(mutex) != -EPERM);
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
}

/* What has a thread, or needs none, is not driven; nor is a parent's agent, or a closed one. */
static void misuse(void)
{
    distlock_options options = member(1);
    distlock_agent *agent = open_local(), *driven = NULL;
    int64_t timeout;
    pid_t child;
    EXPECT(-EINVAL, distlock_agent_fd(agent));
    EXPECT(-EINVAL, distlock_agent_process(agent));
    EXPECT(-EINVAL, distlock_agent_timeout(agent, &timeout));
    distlock_agent_close(agent);
    EXPECT(-EINVAL, distlock_agent_open_driven(NULL, &driven));
    options.socket_path = config;
    EXPECT(-EINVAL, distlock_agent_open_driven(&options, &driven));
    CHECK(driven == NULL);
    options = member(9);
    EXPECT(-EINVAL, distlock_agent_open_driven(&options, &driven));

    driven = open_driven(1);
    options = member(1);
    EXPECT(-EBUSY, distlock_agent_open_driven(&options, &agent));
    EXPECT(-EINVAL, distlock_agent_timeout(driven, NULL));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        EXPECT(-EINVAL, distlock_agent_fd(driven));
        EXPECT(-EINVAL, distlock_agent_process(driven));
        distlock_agent_close(driven);
        _exit(0);
    }
    join_child(child);
    EXPECT(0, distlock_agent_process(driven));
    distlock_agent_close(driven);
    EXPECT(-EINVAL, distlock_agent_process(driven));
    EXPECT(-EINVAL, distlock_agent_fd(driven));
}

int main(int argc, char **argv)
{
    char alone[96];
    CHECK(argc == 2);
    make_group(argv[1], 2, LEASE_MS);
    takes_turns();
    snprintf(alone, sizeof alone, "%s/alone", argv[1]);
    CHECK(mkdir(alone, 0700) == 0);
    make_group(alone, 1, SHORT_LEASE_MS);
    loses_its_lease();
    misuse();
    return 0;
}
