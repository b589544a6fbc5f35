/* Every function, its codes, and what it makes of nonsense. */
#include "check.h"

static void nonsense(void)
{
    distlock_agent *agent = (distlock_agent *)16;
    distlock_mutex *mutex = (distlock_mutex *)16;
    distlock_sem *sem = (distlock_sem *)16;
    int value;
    EXPECT(-EINVAL, distlock_agent_open(NULL, NULL));
    distlock_agent_close(NULL);
    distlock_mutex_close(NULL);
    distlock_sem_close(NULL);
    EXPECT(-EINVAL, distlock_mutex_open(NULL, "x", &mutex));
    CHECK(mutex == NULL);
    EXPECT(-EINVAL, distlock_sem_open(NULL, "x", 1, &sem));
    CHECK(sem == NULL);
    EXPECT(-EINVAL, distlock_lock(NULL, NULL));
    EXPECT(-EINVAL, distlock_trylock(NULL, NULL));
    EXPECT(-EINVAL, distlock_timedlock(NULL, 0, NULL));
    EXPECT(-EINVAL, distlock_unlock(NULL));
    EXPECT(-EINVAL, distlock_is_held(NULL));
    EXPECT(-EINVAL, distlock_lost_fd(NULL));
    EXPECT(-EINVAL, distlock_sem_wait(NULL));
    EXPECT(-EINVAL, distlock_sem_trywait(NULL));
    EXPECT(-EINVAL, distlock_sem_timedwait(NULL, 0));
    EXPECT(-EINVAL, distlock_sem_post(NULL));
    EXPECT(-EINVAL, distlock_sem_getvalue(NULL, &value));

    agent = open_local();
    EXPECT(-EINVAL, distlock_mutex_open(agent, NULL, &mutex));
    EXPECT(-EINVAL, distlock_mutex_open(agent, "x", NULL));
    EXPECT(-EINVAL, distlock_sem_open(agent, NULL, 1, &sem));
    EXPECT(-EINVAL, distlock_sem_open(agent, "x", 1, NULL));
    /* Handles of another kind, and ones that were closed. */
    EXPECT(-EINVAL, distlock_lock((distlock_mutex *)(void *)agent, NULL));
    distlock_mutex_close((distlock_mutex *)(void *)agent);
    mutex = open_mutex(agent, "x");
    EXPECT(-EINVAL, distlock_sem_wait((distlock_sem *)(void *)mutex));
    distlock_mutex_close(mutex);
    distlock_mutex_close(mutex);
    EXPECT(-EINVAL, distlock_lock(mutex, NULL));
    EXPECT(-EINVAL, distlock_unlock(mutex));
    EXPECT(0, distlock_sem_open(agent, "x", 1, &sem));
    EXPECT(-EINVAL, distlock_sem_getvalue(sem, NULL));
    distlock_sem_close(sem);
    EXPECT(-EINVAL, distlock_sem_post(sem));
    distlock_agent_close(agent);
    distlock_agent_close(agent);
    EXPECT(-EINVAL, distlock_mutex_open(agent, "x", &mutex));
}

static void words(void)
{
    int code;
    CHECK(distlock_version()[0] >= '0' && distlock_version()[0] <= '9');
    for (code = -200; code <= 200; code++) {
        CHECK(distlock_strerror(code) != NULL && distlock_strerror(code)[0] != '\0');
        CHECK(strcmp(distlock_strerror(code), distlock_strerror(-code)) == 0);
    }
    CHECK(strcmp(distlock_strerror(-ENOENT), strerror(ENOENT)) == 0);
    CHECK(strstr(distlock_strerror(-EOWNERDEAD), "held") != NULL);
}

static void names(distlock_agent *agent)
{
    char longest[257];
    distlock_mutex *mutex;
    distlock_sem *sem;
    memset(longest, 'x', 256);
    longest[256] = '\0';
    EXPECT(-ENAMETOOLONG, distlock_mutex_open(agent, longest, &mutex));
    CHECK(mutex == NULL);
    EXPECT(-ENAMETOOLONG, distlock_sem_open(agent, longest, 1, &sem));
    longest[255] = '\0';
    mutex = open_mutex(agent, longest);
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);
    EXPECT(-EINVAL, distlock_mutex_open(agent, "", &mutex));
    mutex = open_mutex(agent, "\xff/..\n%s ");
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);
}

/* A program that was built with another version of the header. */
static void options(void)
{
    struct {
        distlock_options known;
        uintptr_t later;
    } big;
    distlock_options small;
    distlock_agent *agent;
    memset(&small, 0, sizeof small);
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    CHECK(agent == NULL);
    small.size = sizeof small;
    EXPECT(0, distlock_agent_open(&small, &agent));
    distlock_agent_close(agent);
    small.flags = DISTLOCK_LOCAL;
    EXPECT(0, distlock_agent_open(&small, &agent));
    distlock_agent_close(agent);
    small.flags = 2;
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    small.flags = 0;
    small.at = "redis://localhost";
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    small.at = NULL;
    small.size = sizeof(size_t);
    small.socket_path = "/nowhere";
    EXPECT(0, distlock_agent_open(&small, &agent));
    distlock_agent_close(agent);
    small.size = sizeof small;
    EXPECT(-ENOTCONN, distlock_agent_open(&small, &agent));
    small.config_path = "/nowhere";
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    small.socket_path = NULL;
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    small.id = 1;
    EXPECT(-ENOENT, distlock_agent_open(&small, &agent));
    small.config_path = "/dev/null";
    EXPECT(-EINVAL, distlock_agent_open(&small, &agent));
    memset(&big, 0, sizeof big);
    big.known.size = sizeof big;
    EXPECT(0, distlock_agent_open(&big.known, &agent));
    distlock_agent_close(agent);
    big.later = 1;
    EXPECT(-EINVAL, distlock_agent_open(&big.known, &agent));
}

struct other {
    distlock_mutex *mutex;
    distlock_mutex *same;
};

/* What a thread may not do with what another holds. */
static void *be_another(void *argument)
{
    struct other *other = (struct other *)argument;
    int64_t start = now_ms();
    EXPECT(-EPERM, distlock_unlock(other->mutex));
    EXPECT(-EPERM, distlock_unlock(other->same));
    EXPECT(-EBUSY, distlock_trylock(other->mutex, NULL));
    EXPECT(-EBUSY, distlock_trylock(other->same, NULL));
    EXPECT(-ETIMEDOUT, distlock_timedlock(other->mutex, 0, NULL));
    EXPECT(-ETIMEDOUT, distlock_timedlock(other->mutex, 130, NULL));
    CHECK(now_ms() - start >= 130);
    EXPECT(-EINVAL, distlock_timedlock(other->mutex, -2, NULL));
    return argument;
}

static void mutexes(distlock_agent *agent)
{
    struct other other;
    uint64_t first = 0, second = 0;
    pthread_t thread;
    other.mutex = open_mutex(agent, "x");
    other.same = open_mutex(agent, "x");
    EXPECT(0, distlock_is_held(other.mutex));
    EXPECT(-EPERM, distlock_unlock(other.mutex));
    EXPECT(0, distlock_lock(other.mutex, &first));
    CHECK(first > 0);
    EXPECT(1, distlock_is_held(other.mutex));
    EXPECT(0, distlock_is_held(other.same));
    EXPECT(-EDEADLK, distlock_lock(other.mutex, NULL));
    EXPECT(-EDEADLK, distlock_timedlock(other.same, 1000, NULL));
    EXPECT(-EBUSY, distlock_trylock(other.mutex, NULL));
    CHECK(pthread_create(&thread, NULL, be_another, &other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    EXPECT(0, distlock_unlock(other.mutex));
    EXPECT(0, distlock_is_held(other.mutex));
    EXPECT(-EPERM, distlock_unlock(other.mutex));
    EXPECT(0, distlock_trylock(other.same, &second));
    CHECK(second > first);
    EXPECT(0, distlock_unlock(other.same));
    EXPECT(0, distlock_timedlock(other.mutex, -1, &first));
    CHECK(first > second);
    /* Closing releases. */
    distlock_mutex_close(other.mutex);
    EXPECT(0, distlock_trylock(other.same, NULL));
    EXPECT(0, distlock_unlock(other.same));
    distlock_mutex_close(other.same);
}

static void *post(void *argument)
{
    EXPECT(0, distlock_sem_post((distlock_sem *)argument));
    return argument;
}

static void semaphores(distlock_agent *agent)
{
    distlock_sem *sem, *same, *wrong;
    pthread_t thread;
    int value = -1;
    int64_t start;
    EXPECT(-EINVAL, distlock_sem_open(agent, "s", 0, &sem));
    EXPECT(0, distlock_sem_open(agent, "s", 2, &sem));
    EXPECT(0, distlock_sem_open(agent, "s", 2, &same));
    EXPECT(-EINVAL, distlock_sem_open(agent, "s", 3, &wrong));
    EXPECT(-EPERM, distlock_sem_post(sem));
    EXPECT(0, distlock_sem_getvalue(sem, &value));
    CHECK(value == 2);
    EXPECT(0, distlock_sem_wait(sem));
    EXPECT(0, distlock_sem_timedwait(same, 1000));
    EXPECT(0, distlock_sem_getvalue(sem, &value));
    CHECK(value == 0);
    EXPECT(-EBUSY, distlock_sem_trywait(sem));
    EXPECT(-EDEADLK, distlock_sem_wait(sem));
    EXPECT(-EINVAL, distlock_sem_timedwait(sem, -2));
    /* Another thread may give back what this one took; and this one by either handle. */
    CHECK(pthread_create(&thread, NULL, post, sem) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    EXPECT(0, distlock_sem_getvalue(sem, &value));
    CHECK(value == 1);
    start = now_ms();
    EXPECT(0, distlock_sem_trywait(sem));
    EXPECT(0, distlock_sem_post(same));
    EXPECT(0, distlock_sem_post(same));
    EXPECT(-EPERM, distlock_sem_post(same));
    CHECK(now_ms() - start < 5000);
    /* Closing gives back what was taken by this handle. */
    EXPECT(0, distlock_sem_wait(sem));
    EXPECT(0, distlock_sem_wait(same));
    distlock_sem_close(sem);
    EXPECT(0, distlock_sem_getvalue(same, &value));
    CHECK(value == 1);
    EXPECT(0, distlock_sem_post(same));
    EXPECT(-EPERM, distlock_sem_post(same));
    distlock_sem_close(same);
}

/* The agent is closed before its handles. */
static void closed_agent(void)
{
    distlock_agent *agent = open_local();
    distlock_mutex *mutex = open_mutex(agent, "closed"), *another;
    distlock_sem *sem;
    int lost, value;
    EXPECT(0, distlock_sem_open(agent, "closed too", 1, &sem));
    lost = distlock_lost_fd(mutex);
    CHECK(lost >= 0 && lost == distlock_lost_fd(mutex));
    EXPECT(0, distlock_lock(mutex, NULL));
    EXPECT(0, distlock_sem_wait(sem));
    CHECK(!is_readable(lost, 0));
    distlock_agent_close(agent);
    CHECK(is_readable(lost, 0));
    EXPECT(0, distlock_is_held(mutex));
    EXPECT(-ECANCELED, distlock_unlock(mutex));
    CHECK(!is_readable(lost, 0));
    EXPECT(-EPERM, distlock_unlock(mutex));
    EXPECT(-ECANCELED, distlock_lock(mutex, NULL));
    EXPECT(-ECANCELED, distlock_trylock(mutex, NULL));
    EXPECT(-ECANCELED, distlock_sem_post(sem));
    EXPECT(-ECANCELED, distlock_sem_wait(sem));
    EXPECT(-ECANCELED, distlock_sem_getvalue(sem, &value));
    /* It released what it held. */
    agent = open_local();
    another = open_mutex(agent, "closed");
    EXPECT(0, distlock_trylock(another, NULL));
    distlock_mutex_close(mutex);
    EXPECT(1, distlock_is_held(another));
    distlock_sem_close(sem);
    distlock_mutex_close(another);
    distlock_agent_close(agent);
}

/* The resource's side, which needs no agent. */
static void fences(void)
{
    char directory[] = "/tmp/distlock-c-XXXXXX", file[64], lock[64];
    FILE *damaged;
    CHECK(mkdtemp(directory) != NULL);
    snprintf(file, sizeof file, "%s/fence", directory);
    snprintf(lock, sizeof lock, "%s/fence.lock", directory);
    EXPECT(-EINVAL, distlock_fence_check(NULL, 7));
    EXPECT(-EINVAL, distlock_fence_check(file, 0));
    EXPECT(-EINVAL, distlock_fence_check(file, UINT64_MAX));
    EXPECT(0, distlock_fence_check(file, 7));
    EXPECT(0, distlock_fence_check(file, INT64_MAX));
    EXPECT(0, distlock_fence_check(file, INT64_MAX));
    EXPECT(-ESTALE, distlock_fence_check(file, 7));
    EXPECT(-ENOENT, distlock_fence_check("/no/such/directory/fence", 7));
    damaged = fopen(file, "w");
    CHECK(damaged != NULL && fclose(damaged) == 0);
    EXPECT(-EBADMSG, distlock_fence_check(file, 8));
    CHECK(unlink(file) == 0 && unlink(lock) == 0 && rmdir(directory) == 0);
}

int main(void)
{
    distlock_agent *agent;
    nonsense();
    fences();
    words();
    options();
    agent = open_local();
    names(agent);
    mutexes(agent);
    semaphores(agent);
    distlock_agent_close(agent);
    closed_agent();
    return 0;
}
