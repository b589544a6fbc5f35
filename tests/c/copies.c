/* Two copies of the library in one process, as a program and its plug-in may have: each knows its
 * own handles only, and they exclude each other as two processes do. The files are the arguments. */
#include "check.h"

#include <dlfcn.h>

typedef struct {
    void *library;
    int (*agent_open)(const distlock_options *, distlock_agent **);
    void (*agent_close)(distlock_agent *);
    int (*mutex_open)(distlock_agent *, const char *, distlock_mutex **);
    void (*mutex_close)(distlock_mutex *);
    int (*lock)(distlock_mutex *, uint64_t *);
    int (*trylock)(distlock_mutex *, uint64_t *);
    int (*unlock)(distlock_mutex *);
    distlock_agent *agent;
    distlock_mutex *mutex;
} copy;

/* ISO C has no way from an object pointer to a function pointer; POSIX promises this one. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    memcpy(function, &symbol, sizeof symbol);
}

static copy load(const char *file)
{
    copy loaded;
    loaded.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (loaded.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    find(loaded.library, "distlock_agent_open", &loaded.agent_open);
    find(loaded.library, "distlock_agent_close", &loaded.agent_close);
    find(loaded.library, "distlock_mutex_open", &loaded.mutex_open);
    find(loaded.library, "distlock_mutex_close", &loaded.mutex_close);
    find(loaded.library, "distlock_lock", &loaded.lock);
    find(loaded.library, "distlock_trylock", &loaded.trylock);
    find(loaded.library, "distlock_unlock", &loaded.unlock);
    CHECK(loaded.agent_open(NULL, &loaded.agent) == 0);
    CHECK(loaded.mutex_open(loaded.agent, "copies", &loaded.mutex) == 0);
    return loaded;
}

static void *wait_for_it(void *argument)
{
    copy *waiting = (copy *)argument;
    CHECK(waiting->lock(waiting->mutex, NULL) == 0);
    CHECK(waiting->unlock(waiting->mutex) == 0);
    return argument;
}

int main(int argc, char **argv)
{
    struct timespec some = {0, 60000000};
    copy copies[2];
    pthread_t thread;
    int i;
    CHECK(argc == 3);
    copies[0] = load(argv[1]);
    copies[1] = load(argv[2]);
    CHECK(copies[0].lock != copies[1].lock);
    for (i = 0; i < 100; i++) {
        copy *one = &copies[i % 2], *other = &copies[1 - i % 2];
        CHECK(one->lock(one->mutex, NULL) == 0);
        CHECK(other->trylock(other->mutex, NULL) == -EBUSY);
        CHECK(other->unlock(other->mutex) == -EPERM);
        CHECK(other->unlock(one->mutex) == -EINVAL);
        CHECK(one->unlock(one->mutex) == 0);
    }
    CHECK(copies[0].lock(copies[0].mutex, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_it, &copies[1]) == 0);
    nanosleep(&some, NULL);
    CHECK(copies[0].unlock(copies[0].mutex) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (i = 0; i < 2; i++) {
        copies[i].mutex_close(copies[i].mutex);
        copies[i].agent_close(copies[i].agent);
        CHECK(dlclose(copies[i].library) == 0);
    }
    return 0;
}
