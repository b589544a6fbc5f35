/* A bad disk, loaded before the C library. It takes what is written and fails when it is to be kept:
 * fsync(2) fails as long as the file is there that DISTLOCK_TEST_BAD_DISK names. Or it takes its time:
 * fsync(2) takes as many seconds as the first byte says of the file that DISTLOCK_TEST_SLOW_DISK names,
 * if it is there, and writes "waits" to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int seconds(void)
{
    const char *sign = getenv("DISTLOCK_TEST_SLOW_DISK");
    int file = sign ? open(sign, O_RDWR | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    char digit = '0';
    if (read(file, &digit, 1) != 1 || write(file, "waits", 5) != 5)
        abort();
    close(file);
    return digit - '0';
}

int fsync(int file)
{
    const char *sign = getenv("DISTLOCK_TEST_BAD_DISK");
    if (sign && access(sign, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    for (unsigned left = seconds(); left;)
        left = sleep(left);
    return (int)syscall(SYS_fsync, file);
}
