/* An agent without a thread, which SIGIO has its program drive: one that computes, and one that
 * sleeps. The argument is an empty directory. */
#include "driven.h"

#include <sys/select.h>

static volatile sig_atomic_t is_due;

static void note(int number)
{
    (void)number;
    is_due = 1;
}

/* Computes until the signal comes, and processes. */
static unsigned long compute(distlock_agent *agent, unsigned long sum)
{
    do {
        sum = sum * 6364136223846793005UL + 1;
    } while (!is_due);
    is_due = 0;
    EXPECT(0, distlock_agent_process(agent));
    return sum;
}

/* Sleeps until `fd` is readable, but for what the signal tells of. The signal is blocked while
 * nobody sleeps, so that none comes between the look and the sleep. */
static void sleep_until(distlock_agent *agent, int fd)
{
    sigset_t blocked, unblocked;
    int got;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGIO);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, &unblocked) == 0);
    do {
        fd_set waited;
        if (is_due) {
            is_due = 0;
            EXPECT(0, distlock_agent_process(agent));
        }
        FD_ZERO(&waited);
        FD_SET(fd, &waited);
        got = pselect(fd + 1, &waited, NULL, NULL, NULL, &unblocked);
        CHECK(got == 1 || (got == -1 && errno == EINTR));
    } while (got != 1);
    CHECK(sigprocmask(SIG_SETMASK, &unblocked, NULL) == 0);
}

int main(int argc, char **argv)
{
    flag done = new_flag(), over = new_flag();
    struct sigaction action;
    unsigned long sum = 1;
    distlock_agent *agent;
    distlock_mutex *mutex;
    int threads, round, code;
    pid_t other;
    CHECK(argc == 2);
    make_group(argv[1], 2, LEASE_MS);
    other = start_threaded(2, done, over);
    threads = count_threads();
    agent = open_driven(1);
    mutex = open_mutex(agent, "counter");
    /* Until the group is there. */
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));

    /* Without a handler it would end the program. */
    EXPECT(-EINVAL, distlock_agent_sigio(agent, 1));
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    CHECK(sigaction(SIGIO, &action, NULL) == 0);
    EXPECT(0, distlock_agent_sigio(agent, 1));

    for (round = 0; round < ROUNDS; round++) {
        EXPECT(0, distlock_lock_begin(mutex));
        while ((code = distlock_lock_poll(mutex, NULL)) == -EINPROGRESS) {
            sum = compute(agent, sum);
        }
        EXPECT(0, code);
        increment();
        EXPECT(0, distlock_unlock(mutex));
    }
    /* Where nobody was in the way in any round, it has not computed yet: a sign of life of the other
     * ends this. */
    sum = compute(agent, sum);
    CHECK(sum != 1);
    /* The other goes on, since this one wakes for it. */
    sleep_until(agent, done.ends[0]);
    CHECK(read_counter() == 2 * ROUNDS);
    CHECK(count_threads() == threads);
    EXPECT(0, distlock_agent_sigio(agent, 0));
    raise_flag(over);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    EXPECT(-EINVAL, distlock_agent_sigio(agent, 1));
    join_child(other);
    close_flag(done);
    close_flag(over);
    return 0;
}
