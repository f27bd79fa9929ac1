/* A disk that stalls: while the file named by LOGFLEET_STALL exists, whatever makes data durable takes 200 ms longer; while the
 * one named by LOGFLEET_STALL_WRITES exists, each write at a position takes as many ms longer as are written in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_ms(long ms)
{
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

static void stall(void)
{
    const char *file = getenv("LOGFLEET_STALL");
    if (file && access(file, F_OK) == 0)
        wait_ms(200);
}

static void stall_write(void)
{
    const char *file = getenv("LOGFLEET_STALL_WRITES");
    char text[16] = "";
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (read(fd, text, sizeof text - 1) > 0)
        wait_ms(atol(text));
    close(fd);
}

#define STALLED(name)                                            \
    int name(int fd)                                             \
    {                                                            \
        static int (*real)(int);                                 \
        if (!real)                                               \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);        \
        stall();                                                 \
        return real(fd);                                         \
    }

#define STALLED_WRITE(name, offset_t)                                                            \
    ssize_t name(int fd, const void *data, size_t size, offset_t position)                       \
    {                                                                                            \
        static ssize_t (*real)(int, const void *, size_t, offset_t);                             \
        if (!real)                                                                               \
            real = (ssize_t (*)(int, const void *, size_t, offset_t))dlsym(RTLD_NEXT, #name);    \
        stall_write();                                                                           \
        return real(fd, data, size, position);                                                   \
    }

STALLED(fsync)
STALLED(fdatasync)
STALLED_WRITE(pwrite, off_t)
STALLED_WRITE(pwrite64, off64_t)
