/* Leases: clients of the agents of three hosts, one of which stands still with what its client
 * holds. The arguments are the program `distlock` and an empty directory. */
#include "check.h"

#define MEMBERS 3
#define LEASE_MS 500

static char config[96], state[96], sockets[MEMBERS][96];
static pid_t agents[MEMBERS];

static void write_config(const char *directory)
{
    FILE *file;
    int i;
    snprintf(config, sizeof config, "%s/group.toml", directory);
    snprintf(state, sizeof state, "%s/state", directory);
    file = fopen(config, "w");
    CHECK(file != NULL);
    fprintf(file, "lease = \"%dms\"\n[group]\nname = \"c\"\n", LEASE_MS);
    for (i = 0; i < MEMBERS; i++) {
        snprintf(sockets[i], sizeof sockets[i], "%s/socket-%d", directory, i + 1);
        fprintf(file, "[[member]]\nid = %d\naddress = \"unix:%s/%d\"\n", i + 1, directory, i + 1);
    }
    CHECK(fclose(file) == 0);
}

/* Starts `distlock agent` as a member, and waits until it is ready. */
static pid_t start_agent(const char *program, int member)
{
    flag output = new_flag();
    char line[5], id[4];
    size_t length = 0;
    pid_t agent;
    snprintf(id, sizeof id, "%d", (member + 1) % 100);
    agent = fork();
    CHECK(agent >= 0);
    if (agent == 0) {
        dup2(output.ends[1], 1);
        close_flag(output);
        execl(program, program, "agent", "--config", config, "--id", id, "--socket",
              sockets[member], "--state-dir", state, (char *)NULL);
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

static distlock_agent *open_client(int member)
{
    distlock_agent *agent = NULL;
    distlock_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.socket_path = sockets[member];
    EXPECT(0, distlock_agent_open(&options, &agent));
    return agent;
}

/* Waits until the lock is held no more; nothing tells, so it looks. */
static void await_end_of_lease(distlock_mutex *mutex)
{
    struct timespec some = {0, 1000000};
    int64_t end = now_ms() + 60000;
    while (distlock_is_held(mutex) == 1) {
        CHECK(now_ms() < end);
        nanosleep(&some, NULL);
    }
}

/* The holder's agent stands still past its lease. The holder knows by its own clock, before another
 * is inside, and unlocking tells it the truth. */
static void agent_stands_still(void)
{
    distlock_agent *first = open_client(0), *second = open_client(1);
    distlock_mutex *here = open_mutex(first, "x"), *there = open_mutex(second, "x");
    uint64_t fence = 0, next = 0;
    int lost = distlock_lost_fd(here), round;
    CHECK(lost >= 0);
    for (round = 0; round < 2; round++) {
        EXPECT(0, distlock_timedlock(here, 60000, &fence));
        CHECK(fence > next);
        EXPECT(1, distlock_is_held(here));
        CHECK(kill(agents[0], SIGSTOP) == 0);
        await_end_of_lease(here);
        EXPECT(0, distlock_is_held(here));
        /* It cannot be known yet whether the lock is lost. */
        CHECK(!is_readable(lost, 0));
        EXPECT(-EOWNERDEAD, distlock_timedlock(there, 60000, &next));
        CHECK(next > fence);
        EXPECT(0, distlock_is_held(here));
        CHECK(kill(agents[0], SIGCONT) == 0);
        if (round == 0) {
            CHECK(is_readable(lost, 60000));
            EXPECT(0, distlock_is_held(here));
        }
        EXPECT(-ESTALE, distlock_unlock(here));
        EXPECT(-EPERM, distlock_unlock(here));
        CHECK(!is_readable(lost, 0));
        EXPECT(1, distlock_is_held(there));
        EXPECT(0, distlock_unlock(there));
    }
    distlock_mutex_close(here);
    distlock_mutex_close(there);
    distlock_agent_close(first);
    distlock_agent_close(second);
}

int main(int argc, char **argv)
{
    int i;
    CHECK(argc == 3);
    write_config(argv[2]);
    for (i = 0; i < MEMBERS; i++) {
        agents[i] = start_agent(argv[1], i);
    }
    agent_stands_still();
    for (i = 0; i < MEMBERS; i++) {
        CHECK(kill(agents[i], SIGTERM) == 0);
    }
    for (i = 0; i < MEMBERS; i++) {
        join_child(agents[i]);
    }
    return 0;
}
