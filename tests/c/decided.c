/* The descriptor that tells of requests that have an outcome: in the local group, and of an agent that the
 * program drives. The argument is an empty directory. */
#include "driven.h"

/* Looks at its request only when the descriptor says so; how often that was. */
static int await_decided(distlock_mutex *mutex, distlock_agent *driven)
{
    struct pollfd polled[2];
    int looks = 0, code;
    do {
        memset(polled, 0, sizeof polled);
        polled[0].fd = distlock_lock_fd(mutex);
        polled[1].fd = driven != NULL ? distlock_agent_fd(driven) : -1;
        polled[0].events = polled[1].events = POLLIN;
        CHECK(poll(polled, 2, 60000) > 0);
        if (polled[1].revents != 0) {
            EXPECT(0, distlock_agent_process(driven));
        }
        code = -EINPROGRESS;
        if (polled[0].revents != 0) {
            code = distlock_lock_poll(mutex, NULL);
            looks++;
        }
    } while (code == -EINPROGRESS);
    EXPECT(0, code);
    return looks;
}

/* Another process holds the lock for a while. */
static void in_local_group(void)
{
    flag inside = new_flag(), leave = new_flag();
    distlock_agent *agent;
    distlock_mutex *mutex;
    pid_t other = fork();
    int fd, looks;
    CHECK(other >= 0);
    if (other == 0) {
        agent = open_local();
        mutex = open_mutex(agent, "m");
        EXPECT(0, distlock_lock(mutex, NULL));
        raise_flag(inside);
        await_flag(leave);
        EXPECT(0, distlock_unlock(mutex));
        distlock_mutex_close(mutex);
        distlock_agent_close(agent);
        exit(0);
    }
    await_flag(inside);
    agent = open_local();
    mutex = open_mutex(agent, "m");
    fd = distlock_lock_fd(mutex);
    CHECK(fd >= 0 && fd == distlock_lock_fd(mutex));
    CHECK(!is_readable(fd, 0));
    EXPECT(0, distlock_lock_begin(mutex));
    /* It may be readable without reason, and is not any more when that was looked at. */
    for (looks = 0; is_readable(fd, 0); looks++) {
        EXPECT(-EINPROGRESS, distlock_lock_poll(mutex, NULL));
        CHECK(looks < 20);
    }
    raise_flag(leave);
    looks = await_decided(mutex, NULL);
    CHECK(looks < 100);
    CHECK(!is_readable(fd, 0));
    EXPECT(0, distlock_unlock(mutex));
    join_child(other);

    /* What is free is told of at once, and what is withdrawn not any more. */
    EXPECT(0, distlock_lock_begin(mutex));
    await_decided(mutex, NULL);
    EXPECT(0, distlock_unlock(mutex));
    EXPECT(0, distlock_lock_begin(mutex));
    EXPECT(0, distlock_lock_cancel(mutex));
    CHECK(!is_readable(fd, 0));
    EXPECT(0, distlock_trylock(mutex, NULL));
    distlock_mutex_close(mutex);
    EXPECT(-EINVAL, distlock_lock_fd(mutex));
    distlock_agent_close(agent);
    close_flag(inside);
    close_flag(leave);
}

static void driven(const char *directory)
{
    flag done = new_flag(), over = new_flag();
    distlock_agent *agent;
    distlock_mutex *mutex;
    int round;
    pid_t other;
    make_group(directory, 2, LEASE_MS);
    other = start_threaded(2, done, over);
    agent = open_driven(1);
    mutex = open_mutex(agent, "counter");
    /* Until the group is there. */
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));
    for (round = 0; round < ROUNDS; round++) {
        EXPECT(0, distlock_lock_begin(mutex));
        await_decided(mutex, agent);
        increment();
        EXPECT(0, distlock_unlock(mutex));
    }
    while (!is_readable(done.ends[0], 0)) {
        struct pollfd polled[2];
        memset(polled, 0, sizeof polled);
        polled[0].fd = distlock_agent_fd(agent);
        polled[1].fd = done.ends[0];
        polled[0].events = polled[1].events = POLLIN;
        CHECK(poll(polled, 2, 60000) > 0);
        EXPECT(0, distlock_agent_process(agent));
    }
    CHECK(read_counter() == 2 * ROUNDS);
    raise_flag(over);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    join_child(other);
    close_flag(done);
    close_flag(over);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    /* First what starts no thread: a fork cuts threads off that are about to end, with what they have. */
    driven(argv[1]);
    in_local_group();
    return 0;
}
