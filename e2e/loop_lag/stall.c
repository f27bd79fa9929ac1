/* A disk that stalls: while the file named by LOGFLEET_STALL exists, whatever makes data durable takes 200 ms longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void stall(void)
{
    const char *file = getenv("LOGFLEET_STALL");
    struct timespec wait = {0, 200000000};
    if (file && access(file, F_OK) == 0)
        nanosleep(&wait, NULL);
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

STALLED(fsync)
STALLED(fdatasync)
