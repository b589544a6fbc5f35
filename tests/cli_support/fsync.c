/* A disk that takes what is written and fails when it is to be kept: fsync(2) fails as long as the file
 * is there that DISTLOCK_TEST_BAD_DISK names. Loaded before the C library. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int file)
{
    const char *sign = getenv("DISTLOCK_TEST_BAD_DISK");
    if (sign && access(sign, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, file);
}
