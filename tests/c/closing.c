/* Closing what other threads wait for, or are just about to use. */
#include "check.h"

#define THREADS 4

static distlock_mutex *mutex;
static distlock_sem *sem;

static void *wait_for_mutex(void *argument)
{
    EXPECT(-ECANCELED, distlock_lock(mutex, NULL));
    return argument;
}

static void *wait_for_sem(void *argument)
{
    EXPECT(-ECANCELED, distlock_sem_timedwait(sem, -1));
    return argument;
}

static void start(pthread_t *threads)
{
    struct timespec some = {0, 120000000};
    int i;
    for (i = 0; i < THREADS; i++) {
        void *(*waits)(void *) = i % 2 == 0 ? wait_for_mutex : wait_for_sem;
        CHECK(pthread_create(&threads[i], NULL, waits, NULL) == 0);
    }
    nanosleep(&some, NULL);
}

static void join(pthread_t *threads)
{
    int i;
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* Uses a handle until it is gone. */
static void *use(void *argument)
{
    distlock_mutex *used = (distlock_mutex *)argument;
    for (;;) {
        int code = distlock_lock(used, NULL);
        if (code == 0) {
            code = distlock_unlock(used);
        }
        if (code == -EINVAL || code == -ECANCELED) {
            return NULL;
        }
        EXPECT(0, code);
    }
}

int main(void)
{
    distlock_agent *agent = open_local(), *other = open_local();
    distlock_mutex *holder = open_mutex(other, "m");
    distlock_sem *taker;
    pthread_t threads[THREADS];
    int64_t begin;
    int i, round;
    EXPECT(0, distlock_lock(holder, NULL));
    EXPECT(0, distlock_sem_open(other, "s", 1, &taker));
    EXPECT(0, distlock_sem_wait(taker));

    /* The handles. */
    mutex = open_mutex(agent, "m");
    EXPECT(0, distlock_sem_open(agent, "s", 1, &sem));
    start(threads);
    begin = now_ms();
    distlock_mutex_close(mutex);
    distlock_sem_close(sem);
    join(threads);
    CHECK(now_ms() - begin < 5000);

    /* The agent. */
    mutex = open_mutex(agent, "m");
    EXPECT(0, distlock_sem_open(agent, "s", 1, &sem));
    start(threads);
    begin = now_ms();
    distlock_agent_close(agent);
    join(threads);
    CHECK(now_ms() - begin < 5000);
    distlock_mutex_close(mutex);
    distlock_sem_close(sem);
    EXPECT(1, distlock_is_held(holder));
    EXPECT(0, distlock_unlock(holder));

    /* At any moment. */
    for (round = 0; round < 20; round++) {
        struct timespec some = {0, 0};
        agent = open_local();
        mutex = open_mutex(agent, "busy");
        for (i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&threads[i], NULL, use, mutex) == 0);
        }
        some.tv_nsec = round * 200000;
        nanosleep(&some, NULL);
        if (round % 2 == 0) {
            distlock_mutex_close(mutex);
            join(threads);
            distlock_agent_close(agent);
        } else {
            distlock_agent_close(agent);
            join(threads);
            distlock_mutex_close(mutex);
        }
    }
    distlock_sem_close(taker);
    distlock_mutex_close(holder);
    distlock_agent_close(other);
    return 0;
}
