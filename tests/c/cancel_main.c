/* Cancelling the main thread, which ends in another way than all others. */
#include "check.h"

static distlock_agent *agent;
static distlock_mutex *mutex;
static flag held;

static void *heir(void *argument)
{
    struct timespec some = {0, 120000000};
    pthread_t *main_thread = (pthread_t *)argument;
    EXPECT(0, distlock_lock(mutex, NULL));
    raise_flag(held);
    nanosleep(&some, NULL);
    CHECK(pthread_cancel(*main_thread) == 0);
    CHECK(pthread_join(*main_thread, NULL) == 0);
    EXPECT(0, distlock_unlock(mutex));
    /* Its request was first, and is gone. */
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    exit(0);
}

int main(void)
{
    static pthread_t self;
    pthread_t thread;
    self = pthread_self();
    agent = open_local();
    mutex = open_mutex(agent, "cancel main");
    held = new_flag();
    CHECK(pthread_create(&thread, NULL, heir, &self) == 0);
    await_flag(held);
    distlock_lock(mutex, NULL);
    CHECK(!"it was cancelled");
    return 1;
}
