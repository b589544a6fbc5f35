/*
 * The print spooler of Jones's lecture, without a spooler: hosts that compete for a printer send
 * their files straight to it, each line a message of its own, and a lock keeps the files whole.
 * The twin of the example print_spooler, in C.
 *
 *     cc -std=c99 -o spool examples/spool.c $(pkg-config --cflags --libs distlock)
 *     spool 10.0.0.9 a.txt                                 the users' programs on this host
 *     spool -c shop.toml -i 2 10.0.0.9:9100 a.txt b.txt    a member of a group
 *     spool -s /run/distlock/distlock.sock 10.0.0.9 a.txt  through this host's agent
 *
 * The printer speaks raw TCP, as most do at port 9100. It is through with a file when it closes the
 * connection, not when the last byte was sent, so that long the lock is held. The fence is on the
 * banner: a person who finds a lower one after a higher one knows an old holder by it.
 */
#define _POSIX_C_SOURCE 200809L

#include <distlock.h>

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int usage(void)
{
    fprintf(stderr, "Usage: spool [-l LOCK] [-c CONFIG -i ID [-d STATE_DIR] | -s SOCKET] "
                    "HOST[:PORT] FILE...\n");
    return 64;
}

/* Says what went wrong with a function of distlock. */
static int fail(const char *what, int code)
{
    fprintf(stderr, "spool: %s: %s\n", what, distlock_strerror(code));
    return 1;
}

/* Connects to HOST[:PORT], or [IPv6][:PORT]; -1 if that fails, which it says. */
static int connect_to(const char *printer)
{
    struct addrinfo hints, *found, *next;
    char host[256], *port = NULL;
    const char *where = host;
    int code, fd = -1;

    snprintf(host, sizeof host, "%s", printer);
    if (host[0] == '[' && strchr(host, ']') != NULL) {
        char *end = strchr(host, ']');
        where = host + 1;
        *end = '\0';
        port = end[1] == ':' ? end + 2 : NULL;
    } else if ((port = strrchr(host, ':')) != NULL) {
        *port++ = '\0';
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    code = getaddrinfo(where, port == NULL ? "9100" : port, &hints, &found);
    if (code != 0) {
        fprintf(stderr, "spool: %s: %s\n", printer, gai_strerror(code));
        return -1;
    }
    for (next = found; next != NULL && fd < 0; next = next->ai_next) {
        fd = socket(next->ai_family, next->ai_socktype, next->ai_protocol);
        if (fd >= 0 && connect(fd, next->ai_addr, next->ai_addrlen) != 0) {
            int reason = errno;
            close(fd);
            errno = reason;
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0) {
        fprintf(stderr, "spool: %s: %s\n", printer, strerror(errno));
    }
    return fd;
}

/* Sends all of it; 0, or -1 with errno. */
static int send_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, 0);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return -1;
        }
        bytes += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* Sends `file` line by line, and waits until the printer is through with it; 0, or -1 with errno.
 * It stops when the lock is lost: somebody else may print by now. */
static int send_lines(int fd, FILE *file, const char *banner, const distlock_mutex *mutex)
{
    char line[4096];
    ssize_t got;

    if (send_all(fd, banner, strlen(banner)) != 0) {
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (distlock_is_held(mutex) != 1) {
            errno = ESTALE;
            return -1;
        }
        if (send_all(fd, line, strlen(line)) != 0) {
            return -1;
        }
    }
    if (ferror(file) || shutdown(fd, SHUT_WR) != 0) {
        return -1;
    }
    while ((got = read(fd, line, sizeof line)) != 0) {
        if (got < 0 && errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

/* Prints one file under the lock. Returns what the program is to return. */
static int print(const char *printer, const char *path, distlock_mutex *mutex)
{
    char banner[512];
    uint64_t fence;
    int code, fd, result = 1;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        fprintf(stderr, "spool: %s: %s\n", path, strerror(errno));
        return 1;
    }
    code = distlock_lock(mutex, &fence);
    if (code != 0 && code != -EOWNERDEAD) {
        fclose(file);
        return fail(path, code);
    }
    if (code == -EOWNERDEAD) {
        fprintf(stderr, "spool: the file before %s may be cut off: who printed it died\n", path);
    }
    snprintf(banner, sizeof banner, "---- %s, fence %" PRIu64 "\n", path, fence);
    fd = connect_to(printer);
    if (fd >= 0) {
        result = send_lines(fd, file, banner, mutex) == 0 ? 0 : 1;
        if (result != 0) {
            fprintf(stderr, "spool: %s: %s\n", path, strerror(errno));
        }
        close(fd);
    }
    code = distlock_unlock(mutex);
    fclose(file);
    return code == 0 ? result : fail(path, code);
}

int main(int argc, char **argv)
{
    const char *lock = "printer";
    distlock_options options;
    distlock_agent *agent;
    distlock_mutex *mutex;
    int option, code, result = 0;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    while ((option = getopt(argc, argv, "l:c:i:d:s:")) != -1) {
        switch (option) {
        case 'l': lock = optarg; break;
        case 'c': options.config_path = optarg; break;
        case 'i': options.id = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'd': options.state_dir = optarg; break;
        case 's': options.socket_path = optarg; break;
        default: return usage();
        }
    }
    if (argc - optind < 2) {
        return usage();
    }
    /* A printer that hangs up is an error of one file. */
    signal(SIGPIPE, SIG_IGN);

    code = distlock_agent_open(&options, &agent);
    if (code != 0) {
        return fail("cannot take part in the group", code);
    }
    code = distlock_mutex_open(agent, lock, &mutex);
    if (code != 0) {
        distlock_agent_close(agent);
        return fail(lock, code);
    }
    for (int i = optind + 1; i < argc; i++) {
        result |= print(argv[optind], argv[i], mutex);
    }
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    return result;
}
