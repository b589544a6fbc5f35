/* Cancellation: a waiting thread ends soon, its request is withdrawn, and nothing is held. */
#include "check.h"

static distlock_agent *agent;
static distlock_mutex *mutex;
static distlock_sem *sem;
static flag cleaned;

static void note(void *argument)
{
    (void)argument;
    raise_flag(cleaned);
}

static void *wait_for_mutex(void *argument)
{
    pthread_cleanup_push(note, NULL);
    if (argument != NULL) {
        distlock_timedlock(mutex, 60000, NULL);
    } else {
        distlock_lock(mutex, NULL);
    }
    CHECK(!"it was cancelled");
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_sem(void *argument)
{
    pthread_cleanup_push(note, NULL);
    if (argument != NULL) {
        distlock_sem_timedwait(sem, -1);
    } else {
        distlock_sem_wait(sem);
    }
    CHECK(!"it was cancelled");
    pthread_cleanup_pop(0);
    return NULL;
}

/* A thread that waits, but does not want to be cancelled meanwhile. */
static void *wait_uncancelled(void *argument)
{
    int before, now;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    EXPECT(0, distlock_lock(mutex, NULL));
    CHECK(pthread_setcancelstate(before, &now) == 0);
    CHECK(now == PTHREAD_CANCEL_DISABLE);
    EXPECT(0, distlock_unlock(mutex));
    return argument;
}

/* One that does not have to wait is not cancelled by these functions. */
static void *enter_cancelled(void *argument)
{
    int before;
    CHECK(pthread_cancel(pthread_self()) == 0);
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    EXPECT(0, distlock_sem_trywait(sem));
    EXPECT(0, distlock_sem_post(sem));
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_ENABLE);
    return argument;
}

static void cancel_waiting(void *(*waits)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    struct timespec some = {0, 120000000};
    int64_t start;
    CHECK(pthread_create(&thread, NULL, waits, argument) == 0);
    nanosleep(&some, NULL);
    start = now_ms();
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    await_flag(cleaned);
    CHECK(now_ms() - start < 5000);
}

int main(void)
{
    pthread_t thread;
    void *result;
    int i;
    agent = open_local();
    mutex = open_mutex(agent, "cancel");
    EXPECT(0, distlock_sem_open(agent, "cancel too", 1, &sem));
    cleaned = new_flag();

    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_sem_wait(sem));
    for (i = 0; i < 2; i++) {
        cancel_waiting(wait_for_mutex, i == 0 ? NULL : &i);
        cancel_waiting(wait_for_sem, i == 0 ? NULL : &i);
    }
    CHECK(pthread_create(&thread, NULL, wait_uncancelled, &i) == 0);
    CHECK(pthread_cancel(thread) == 0);
    EXPECT(0, distlock_sem_post(sem));
    EXPECT(0, distlock_unlock(mutex));
    CHECK(pthread_join(thread, &result) == 0);

    CHECK(pthread_create(&thread, NULL, enter_cancelled, &i) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == &i);

    close_flag(cleaned);
    distlock_sem_close(sem);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    return 0;
}
