/* A configured group: a member with an agent thread of its own, another process's member, and a
 * client of a host's agent, which is killed. The arguments are the program `distlock` and an empty
 * directory. */
#include "check.h"
#include <sys/prctl.h>

#define ROUNDS 40

static char config[96], socket_path[96], state[96];

static void write_config(const char *directory)
{
    FILE *file;
    int id;
    snprintf(config, sizeof config, "%s/group.toml", directory);
    snprintf(socket_path, sizeof socket_path, "%s/socket", directory);
    snprintf(state, sizeof state, "%s/state", directory);
    file = fopen(config, "w");
    CHECK(file != NULL);
    /* Long enough for agents that a tool watches, which are slow: no lease ends here. */
    fprintf(file, "lease = \"5s\"\n[group]\nname = \"c\"\n");
    for (id = 1; id <= 2; id++) {
        fprintf(file, "[[member]]\nid = %d\naddress = \"unix:%s/%d\"\n", id, directory, id);
    }
    fprintf(file, "[[lock]]\nname = \"licences\"\npermits = 2\n");
    CHECK(fclose(file) == 0);
}

static distlock_agent *open_member(uint32_t id)
{
    distlock_agent *agent = NULL;
    distlock_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.config_path = config;
    options.id = id;
    options.state_dir = state;
    EXPECT(0, distlock_agent_open(&options, &agent));
    return agent;
}

static distlock_agent *open_client(void)
{
    distlock_agent *agent = NULL;
    distlock_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.socket_path = socket_path;
    EXPECT(0, distlock_agent_open(&options, &agent));
    return agent;
}

/* Starts `distlock agent` as member 2, and waits until it is ready. */
static pid_t start_agent(const char *program)
{
    flag output = new_flag();
    char line[5];
    size_t length = 0;
    pid_t agent = fork();
    CHECK(agent >= 0);
    if (agent == 0) {
        /* A test that fails leaves nobody behind. */
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        dup2(output.ends[1], 1);
        close_flag(output);
        execl(program, program, "agent", "--config", config, "--id", "2", "--socket", socket_path,
              "--state-dir", state, (char *)NULL);
        perror(program);
        _exit(127);
    }
    close(output.ends[1]);
    while (length < sizeof line) {
        ssize_t got = read(output.ends[0], line + length, sizeof line - length);
        CHECK(got > 0);
        length += (size_t)got;
    }
    CHECK(memcmp(line, "ready", sizeof line) == 0);
    close(output.ends[0]);
    return agent;
}

static void take_turns(distlock_agent *agent, int file)
{
    distlock_mutex *mutex = open_mutex(agent, "counter");
    int i;
    for (i = 0; i < ROUNDS; i++) {
        uint64_t fence = 0, counts[2] = {0, 0};
        EXPECT(0, distlock_timedlock(mutex, 60000, &fence));
        EXPECT(1, distlock_is_held(mutex));
        CHECK(pread(file, counts, sizeof counts, 0) >= 0);
        CHECK(counts[1] < fence);
        counts[0]++;
        counts[1] = fence;
        CHECK(pwrite(file, counts, sizeof counts, 0) == (ssize_t)sizeof counts);
        EXPECT(0, distlock_unlock(mutex));
    }
    distlock_mutex_close(mutex);
}

/* Two processes, each a member with its agent thread. */
static void members(void)
{
    FILE *counter = tmpfile();
    distlock_agent *agent;
    uint64_t count = 0;
    flag over = new_flag();
    pid_t child;
    CHECK(counter != NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        agent = open_member(2);
        take_turns(agent, fileno(counter));
        /* Who leaves is waited for. */
        await_flag(over);
        distlock_agent_close(agent);
        exit(0);
    }
    agent = open_member(1);
    take_turns(agent, fileno(counter));
    raise_flag(over);
    join_child(child);
    close_flag(over);
    CHECK(pread(fileno(counter), &count, sizeof count, 0) == (ssize_t)sizeof count);
    CHECK(count == 2 * ROUNDS);
    distlock_agent_close(agent);
    fclose(counter);
}

static void *wait_for_it(void *argument)
{
    distlock_lock((distlock_mutex *)argument, NULL);
    CHECK(!"it was cancelled");
    return NULL;
}

/* A client that is killed inside: whoever enters next is told, once, at whatever member. */
static void dead_client(distlock_agent *member)
{
    distlock_mutex *here = open_mutex(member, "left behind");
    flag inside = new_flag();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        distlock_mutex *there = open_mutex(open_client(), "left behind");
        EXPECT(0, distlock_lock(there, NULL));
        raise_flag(inside);
        pause();
    }
    await_flag(inside);
    close_flag(inside);
    EXPECT(-EBUSY, distlock_trylock(here, NULL));
    EXPECT(-ETIMEDOUT, distlock_timedlock(here, 0, NULL));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    EXPECT(-EOWNERDEAD, distlock_timedlock(here, 60000, NULL));
    EXPECT(1, distlock_is_held(here));
    EXPECT(0, distlock_unlock(here));
    EXPECT(0, distlock_lock(here, NULL));
    EXPECT(0, distlock_unlock(here));
    distlock_mutex_close(here);
}

/* Without options the environment says which group it is, as for `distlock run`. `held` is. */
static void without_options(const char *held)
{
    distlock_options options;
    distlock_agent *agent;
    distlock_mutex *mutex;
    int named;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    CHECK(setenv("DISTLOCK_SOCKET", socket_path, 1) == 0);
    for (named = 0; named < 2; named++) {
        EXPECT(0, distlock_agent_open(named ? &options : NULL, &agent));
        mutex = open_mutex(agent, held);
        EXPECT(-EBUSY, distlock_trylock(mutex, NULL));
        distlock_mutex_close(mutex);
        distlock_agent_close(agent);
    }
    /* The local group is another. */
    options.flags = DISTLOCK_LOCAL;
    EXPECT(0, distlock_agent_open(&options, &agent));
    mutex = open_mutex(agent, held);
    EXPECT(0, distlock_trylock(mutex, NULL));
    EXPECT(0, distlock_unlock(mutex));
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    CHECK(unsetenv("DISTLOCK_SOCKET") == 0);
}

/* Who only tries, or waits for a time, does not wait longer for an agent that stands still. */
static void stopped(pid_t agent, distlock_mutex *mutex)
{
    int status;
    CHECK(kill(agent, SIGSTOP) == 0);
    /* It stands still some time after the signal was sent. */
    CHECK(waitpid(agent, &status, WUNTRACED) == agent && WIFSTOPPED(status));
    EXPECT(-ENOTCONN, distlock_trylock(mutex, NULL));
    EXPECT(-ENOTCONN, distlock_timedlock(mutex, 100, NULL));
    CHECK(kill(agent, SIGCONT) == 0);
    EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
    EXPECT(0, distlock_unlock(mutex));
}

/* A member beside a client of the other member's agent, which is killed at last. */
static void client(const char *program)
{
    struct timespec some = {0, 120000000};
    distlock_agent *member, *user, *again;
    distlock_mutex *here, *there;
    distlock_sem *licences, *wrong;
    distlock_options options;
    pthread_t thread;
    void *result;
    pid_t agent;
    int lost, value = -1;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.config_path = config;
    options.id = 1;
    options.state_dir = state;
    member = open_member(1);
    EXPECT(-EBUSY, distlock_agent_open(&options, &again));
    options.id = 3;
    EXPECT(-EINVAL, distlock_agent_open(&options, &again));
    here = open_mutex(member, "x");
    /* Alone it is no quorum. */
    EXPECT(-ENOTCONN, distlock_timedlock(here, 20, NULL));
    EXPECT(-ENOTCONN, distlock_lock(here, NULL));

    agent = start_agent(program);
    user = open_client();
    there = open_mutex(user, "x");
    EXPECT(0, distlock_timedlock(here, 60000, NULL));
    EXPECT(-EBUSY, distlock_trylock(there, NULL));
    EXPECT(-ETIMEDOUT, distlock_timedlock(there, 60, NULL));
    /* A client's wait is cancelled, and a member's. */
    CHECK(pthread_create(&thread, NULL, wait_for_it, there) == 0);
    nanosleep(&some, NULL);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    without_options("x");
    EXPECT(0, distlock_unlock(here));
    stopped(agent, there);
    EXPECT(0, distlock_lock(there, NULL));
    CHECK(pthread_create(&thread, NULL, wait_for_it, here) == 0);
    nanosleep(&some, NULL);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);

    /* The configuration says how many permits there are. */
    EXPECT(-EINVAL, distlock_sem_open(member, "licences", 3, &wrong));
    EXPECT(0, distlock_sem_open(user, "licences", 0, &licences));
    EXPECT(0, distlock_sem_wait(licences));
    EXPECT(0, distlock_sem_getvalue(licences, &value));
    CHECK(value == 1);
    EXPECT(0, distlock_sem_post(licences));
    dead_client(member);

    lost = distlock_lost_fd(there);
    CHECK(lost >= 0 && !is_readable(lost, 0));
    EXPECT(1, distlock_is_held(there));
    CHECK(kill(agent, SIGKILL) == 0);
    CHECK(waitpid(agent, NULL, 0) == agent);
    CHECK(is_readable(lost, 60000));
    EXPECT(0, distlock_is_held(there));
    EXPECT(-ESTALE, distlock_unlock(there));
    CHECK(!is_readable(lost, 0));
    EXPECT(-EPERM, distlock_unlock(there));
    EXPECT(-ENOTCONN, distlock_lock(there, NULL));
    EXPECT(-ENOTCONN, distlock_sem_wait(licences));

    distlock_sem_close(licences);
    distlock_mutex_close(there);
    distlock_mutex_close(here);
    distlock_agent_close(user);
    distlock_agent_close(member);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    write_config(argv[2]);
    members();
    client(argv[1]);
    return 0;
}
