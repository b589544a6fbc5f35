/* fork in every state: idle, held, waiting, and while other threads are at work. The child can do
 * nothing with what it inherits, hurts nobody, and opens an agent of its own. With the argument
 * "alone" there are no other threads: what those have on their stacks is lost in a child, as leak
 * checkers report. */
#include "check.h"

static distlock_agent *agent;
static distlock_mutex *mutex;
static distlock_sem *sem;

/* What a child finds; `is_busy` says that its parent holds the lock. */
static void be_child(int is_busy)
{
    distlock_agent *own;
    distlock_mutex *same, *opened;
    int value;
    EXPECT(-EINVAL, distlock_lock(mutex, NULL));
    EXPECT(-EINVAL, distlock_trylock(mutex, NULL));
    EXPECT(-EINVAL, distlock_timedlock(mutex, 10, NULL));
    EXPECT(-EINVAL, distlock_unlock(mutex));
    EXPECT(-EINVAL, distlock_is_held(mutex));
    EXPECT(-EINVAL, distlock_lost_fd(mutex));
    EXPECT(-EINVAL, distlock_mutex_open(agent, "x", &opened));
    EXPECT(-EINVAL, distlock_sem_wait(sem));
    EXPECT(-EINVAL, distlock_sem_post(sem));
    EXPECT(-EINVAL, distlock_sem_getvalue(sem, &value));

    own = open_local();
    same = open_mutex(own, "fork");
    CHECK(same != mutex);
    EXPECT(-EINVAL, distlock_unlock(mutex));
    if (is_busy) {
        EXPECT(-EBUSY, distlock_trylock(same, NULL));
    } else {
        EXPECT(0, distlock_timedlock(same, 60000, NULL));
        EXPECT(0, distlock_unlock(same));
    }
    /* The parent's handles again, now that the child has some. */
    distlock_sem_close(sem);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    distlock_mutex_close(same);
    distlock_agent_close(own);
}

static void fork_child(int is_busy)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        be_child(is_busy);
        exit(0);
    }
    join_child(child);
}

static void *wait_for_it(void *argument)
{
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    return argument;
}

static int is_over;

static void *use(void *argument)
{
    distlock_mutex *other = open_mutex(agent, (const char *)argument);
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        EXPECT(0, distlock_lock(other, NULL));
        EXPECT(0, distlock_unlock(other));
    }
    distlock_mutex_close(other);
    return NULL;
}

/* While another thread of the parent waits. */
static void fork_while_waiting(void)
{
    struct timespec some = {0, 60000000};
    pthread_t thread;
    EXPECT(0, distlock_lock(mutex, NULL));
    CHECK(pthread_create(&thread, NULL, wait_for_it, NULL) == 0);
    nanosleep(&some, NULL);
    fork_child(1);
    EXPECT(1, distlock_is_held(mutex));
    EXPECT(0, distlock_unlock(mutex));
    CHECK(pthread_join(thread, NULL) == 0);
}

/* At any moment of other threads. */
static void fork_while_busy(void)
{
    static char names[2][4] = {"a", "b"};
    pthread_t users[2];
    int i;
    for (i = 0; i < 2; i++) {
        CHECK(pthread_create(&users[i], NULL, use, names[i]) == 0);
    }
    for (i = 0; i < 20; i++) {
        fork_child(0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2; i++) {
        CHECK(pthread_join(users[i], NULL) == 0);
    }
}

/* In the local group a child keeps the lock of a parent that dies inside. */
static void inherit(void)
{
    distlock_mutex *inherited = open_mutex(agent, "inherited");
    flag held = new_flag(), over = new_flag();
    pid_t holder = fork();
    CHECK(holder >= 0);
    if (holder == 0) {
        EXPECT(0, distlock_lock(open_mutex(open_local(), "inherited"), NULL));
        if (fork() == 0) {
            await_flag(over);
            _exit(0);
        }
        raise_flag(held);
        pause();
        _exit(1);
    }
    await_flag(held);
    CHECK(kill(holder, SIGKILL) == 0);
    CHECK(waitpid(holder, NULL, 0) == holder);
    EXPECT(-ETIMEDOUT, distlock_timedlock(inherited, 120, NULL));
    raise_flag(over);
    EXPECT(-EOWNERDEAD, distlock_timedlock(inherited, 60000, NULL));
    EXPECT(0, distlock_unlock(inherited));
    distlock_mutex_close(inherited);
    close_flag(held);
    close_flag(over);
}

int main(int argc, char **argv)
{
    int alone = argc == 2 && strcmp(argv[1], "alone") == 0;
    agent = open_local();
    mutex = open_mutex(agent, "fork");
    EXPECT(0, distlock_sem_open(agent, "fork too", 1, &sem));

    fork_child(0);
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_sem_wait(sem));
    fork_child(1);
    EXPECT(1, distlock_is_held(mutex));
    EXPECT(-EDEADLK, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    EXPECT(0, distlock_sem_post(sem));
    if (!alone) {
        inherit();
        fork_while_waiting();
        fork_while_busy();
    }
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_sem_close(sem);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    return 0;
}
