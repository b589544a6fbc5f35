/* Processes and their threads take turns at a counter in a file, and at a few permits. */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PROCESSES 4
#define THREADS 2
#define ROUNDS 50
#define PERMITS 3

struct shared {
    int inside;
    int most;
};

static distlock_mutex *mutex;
static distlock_sem *sem;
static struct shared *shared;
/* Of this process, under the mutex: ThreadSanitizer looks at it. */
static int here;

static uint64_t read_number(int file, off_t at)
{
    uint64_t number = 0;
    CHECK(pread(file, &number, sizeof number, at) >= 0);
    return number;
}

static void write_number(int file, off_t at, uint64_t number)
{
    CHECK(pwrite(file, &number, sizeof number, at) == (ssize_t)sizeof number);
}

static void *take_turns(void *argument)
{
    int file = *(int *)argument, i;
    for (i = 0; i < ROUNDS; i++) {
        uint64_t fence = 0;
        EXPECT(0, distlock_lock(mutex, &fence));
        ENTERED(mutex);
        here++;
        write_number(file, 0, read_number(file, 0) + 1);
        CHECK(read_number(file, 8) < fence);
        write_number(file, 8, fence);
        LEAVING(mutex);
        EXPECT(0, distlock_unlock(mutex));
    }
    for (i = 0; i < ROUNDS; i++) {
        int inside;
        EXPECT(0, distlock_sem_wait(sem));
        inside = __atomic_add_fetch(&shared->inside, 1, __ATOMIC_SEQ_CST);
        CHECK(inside <= PERMITS);
        if (inside > __atomic_load_n(&shared->most, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&shared->most, inside, __ATOMIC_SEQ_CST);
        }
        if (i % 8 == 0) {
            struct timespec some = {0, 1000000};
            nanosleep(&some, NULL);
        }
        __atomic_sub_fetch(&shared->inside, 1, __ATOMIC_SEQ_CST);
        EXPECT(0, distlock_sem_post(sem));
    }
    return NULL;
}

static void be_process(int file)
{
    pthread_t threads[THREADS];
    distlock_agent *agent = open_local();
    int i;
    mutex = open_mutex(agent, "counter");
    EXPECT(0, distlock_sem_open(agent, "permits", PERMITS, &sem));
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, take_turns, &file) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(here == THREADS * ROUNDS);
    distlock_sem_close(sem);
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
}

/* One that dies inside. */
static void leave_behind(void)
{
    distlock_agent *agent;
    distlock_mutex *left;
    distlock_sem *taken;
    flag inside = new_flag();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        agent = open_local();
        left = open_mutex(agent, "left");
        EXPECT(0, distlock_lock(left, NULL));
        EXPECT(0, distlock_sem_open(agent, "taken", 1, &taken));
        EXPECT(0, distlock_sem_wait(taken));
        raise_flag(inside);
        pause();
        _exit(1);
    }
    await_flag(inside);
    agent = open_local();
    left = open_mutex(agent, "left");
    EXPECT(0, distlock_sem_open(agent, "taken", 1, &taken));
    EXPECT(-EBUSY, distlock_trylock(left, NULL));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    EXPECT(-EOWNERDEAD, distlock_lock(left, NULL));
    EXPECT(1, distlock_is_held(left));
    EXPECT(0, distlock_unlock(left));
    EXPECT(0, distlock_lock(left, NULL));
    EXPECT(0, distlock_unlock(left));
    EXPECT(-EOWNERDEAD, distlock_sem_wait(taken));
    EXPECT(0, distlock_sem_post(taken));
    distlock_sem_close(taken);
    distlock_mutex_close(left);
    distlock_agent_close(agent);
    close_flag(inside);
}

int main(void)
{
    pid_t children[PROCESSES];
    FILE *counter = tmpfile();
    int i;
    CHECK(counter != NULL);
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            be_process(fileno(counter));
            exit(0);
        }
    }
    for (i = 0; i < PROCESSES; i++) {
        join_child(children[i]);
    }
    CHECK(read_number(fileno(counter), 0) == PROCESSES * THREADS * ROUNDS);
    CHECK(shared->inside == 0 && shared->most > 1);
    fclose(counter);
    leave_behind();
    return 0;
}
