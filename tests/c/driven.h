/* What the tests of agents without a thread share: a group whose members are processes of this
 * program, and a file that nothing but its lock protects. */
#ifndef DRIVEN_H
#define DRIVEN_H

#include "check.h"

#include <dirent.h>
#include <sys/stat.h>

/* Long, since programs are slow under valgrind. */
#define LEASE_MS 10000
#define ROUNDS 25

static char config[96], state[96], counter[96];

/* A group of `members`, in an empty directory. */
static inline void make_group(const char *directory, int members, int lease_ms)
{
    FILE *file;
    int id;
    snprintf(config, sizeof config, "%s/group.toml", directory);
    snprintf(state, sizeof state, "%s/state", directory);
    snprintf(counter, sizeof counter, "%s/counter", directory);
    file = fopen(config, "w");
    CHECK(file != NULL);
    fprintf(file, "lease = \"%dms\"\n[group]\nname = \"c\"\n", lease_ms);
    for (id = 1; id <= members; id++) {
        fprintf(file, "[[member]]\nid = %d\naddress = \"unix:%s/%d\"\n", id, directory, id);
    }
    CHECK(fclose(file) == 0);
    file = fopen(counter, "w");
    CHECK(file != NULL && fputs("0", file) >= 0 && fclose(file) == 0);
}

static inline distlock_options member(uint32_t id)
{
    distlock_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.config_path = config;
    options.state_dir = state;
    options.id = id;
    return options;
}

static inline distlock_agent *open_driven(uint32_t id)
{
    distlock_options options = member(id);
    distlock_agent *agent = NULL;
    EXPECT(0, distlock_agent_open_driven(&options, &agent));
    return agent;
}

static inline int read_counter(void)
{
    int value = -1;
    FILE *file = fopen(counter, "r");
    CHECK(file != NULL && fscanf(file, "%d", &value) == 1 && fclose(file) == 0);
    return value;
}

static inline void increment(void)
{
    int value = read_counter() + 1;
    FILE *file = fopen(counter, "w");
    CHECK(file != NULL && fprintf(file, "%d", value) > 0 && fclose(file) == 0);
}

/* A member with a thread, in a process of its own: enters so often, raises `done`, and stays until
 * `over`. */
static inline pid_t start_threaded(uint32_t id, flag done, flag over)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        distlock_options options = member(id);
        distlock_agent *agent = NULL;
        distlock_mutex *mutex;
        int round;
        EXPECT(0, distlock_agent_open(&options, &agent));
        mutex = open_mutex(agent, "counter");
        for (round = 0; round < ROUNDS; round++) {
            EXPECT(0, distlock_timedlock(mutex, 60000, NULL));
            increment();
            EXPECT(0, distlock_unlock(mutex));
        }
        raise_flag(done);
        await_flag(over);
        distlock_mutex_close(mutex);
        distlock_agent_close(agent);
        exit(0);
    }
    return child;
}

/* How many threads this process has; a sanitizer may have one of its own. */
static inline int count_threads(void)
{
    int count = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

#endif
