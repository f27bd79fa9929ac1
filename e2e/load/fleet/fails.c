/* A disk that fails: while the file named by LOGFLEET_FAILS exists, writing to and syncing what lies below the directory written in
 * it is an I/O error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd)
{
    const char *file = getenv("LOGFLEET_FAILS");
    char directory[4096] = "", link[64], path[4096];
    int named = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (named < 0)
        return 0;
    ssize_t size = read(named, directory, sizeof directory - 1);
    close(named);
    if (size <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < size || strncmp(path, directory, size) != 0)
        return 0;
    errno = EIO;
    return 1;
}

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

int fsync(int fd) { return fails(fd) ? -1 : REAL(fsync, fd); }
int fdatasync(int fd) { return fails(fd) ? -1 : REAL(fdatasync, fd); }
ssize_t write(int fd, const void *data, size_t size) { return fails(fd) ? -1 : REAL(write, fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return fails(fd) ? -1 : REAL(pwrite, fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return fails(fd) ? -1 : REAL(pwrite64, fd, data, size, at); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return fails(fd) ? -1 : REAL(pwritev, fd, parts, count, at); }
