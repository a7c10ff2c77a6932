/* A disk that stalls, fails or is full, for a mysqld that is started with this library before its own.
 *
 * While the file $MAINSTAY_TEST_DISK.stall is there no access ends; while $MAINSTAY_TEST_DISK.error is there every access is
 * an I/O error. While $MAINSTAY_TEST_DISK.full is there nothing can be appended to a file that is written to as a binlog is
 * (not to what standard output and error are, where the log goes). System calls are made directly, so that it works with any C library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_there(const char *suffix) {
    const char *base = getenv("MAINSTAY_TEST_DISK");
    char path[512];
    if (!base || strlen(base) > 480) return 0;
    strcpy(path, base);
    strcat(path, suffix);
    return syscall(SYS_access, path, 0) == 0;
}

static int fails(void) {
    struct timespec pause = {0, 5000000};
    while (is_there(".stall")) nanosleep(&pause, 0);
    if (!is_there(".error")) return 0;
    errno = EIO;
    return 1;
}

static int has_no_room(int fd) {
    struct stat file;
    if (fd < 3 || syscall(SYS_fstat, fd, &file) || !S_ISREG(file.st_mode) || !is_there(".full")) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *from, size_t size) { return has_no_room(fd) ? -1 : syscall(SYS_write, fd, from, size); }
int fsync(int fd) { return fails() ? -1 : syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return fails() ? -1 : syscall(SYS_fdatasync, fd); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { return fails() ? -1 : syscall(SYS_pwrite64, fd, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { return fails() ? -1 : syscall(SYS_pwrite64, fd, from, size, at); }
ssize_t pread(int fd, void *to, size_t size, off_t at) { return fails() ? -1 : syscall(SYS_pread64, fd, to, size, at); }
ssize_t pread64(int fd, void *to, size_t size, off64_t at) { return fails() ? -1 : syscall(SYS_pread64, fd, to, size, at); }
