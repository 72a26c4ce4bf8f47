/* Delays read() and pread() (by both of its names) of files below SLOW_READ_BELOW by SLOW_READ_US microseconds.
 * Preloaded into a job, it is storage latency for those who may not mount anything. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void delay_if_ours(int fd) {
    const char *below = getenv("SLOW_READ_BELOW"), *delay_us = getenv("SLOW_READ_US");
    char link[64], path[4096];
    if (!below || !delay_us) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    if (strncmp(path, below, strlen(below)) == 0) usleep(atoi(delay_us));
}

ssize_t read(int fd, void *buffer, size_t count) {
    static ssize_t (*real)(int, void *, size_t);
    if (!real) real = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    delay_if_ours(fd);
    return real(fd, buffer, count);
}

ssize_t pread64(int fd, void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    delay_if_ours(fd);
    return real(fd, buffer, count, offset);
}

ssize_t pread(int fd, void *buffer, size_t count, off_t offset) {
    return pread64(fd, buffer, count, offset);
}
