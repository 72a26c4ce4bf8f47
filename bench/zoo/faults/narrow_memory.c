/* Copies of a megabyte or more share NARROW_MEMORY_BYTES_PER_S among all processes that have mapped
 * NARROW_MEMORY_FILE. Who has to wait does so on its core, as a core that waits for memory does: it
 * counts as CPU time. Smaller copies stay in a cache and are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

static void *(*real)(void *, const void *, size_t);
static _Atomic int64_t *free_at_ns; /* when the memory has moved all that was asked for */
static double ns_per_byte;

__attribute__((constructor)) static void open_memory(void) {
    real = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, "memmove");
    const char *path = getenv("NARROW_MEMORY_FILE"), *rate = getenv("NARROW_MEMORY_BYTES_PER_S");
    int file = path && rate ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    ns_per_byte = 1e9 / atof(rate);
    void *page = mmap(NULL, sizeof *free_at_ns, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) free_at_ns = page;
    close(file);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Takes its turn after whoever came before. */
static int64_t reserve(size_t bytes) {
    int64_t before_ns = *free_at_ns, after_ns;
    do {
        int64_t start_ns = now_ns();
        if (before_ns > start_ns) start_ns = before_ns;
        after_ns = start_ns + (int64_t)(bytes * ns_per_byte);
    } while (!__atomic_compare_exchange_n((int64_t *)free_at_ns, &before_ns, after_ns, 0,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return after_ns;
}

void *memmove(void *target, const void *source, size_t count) {
    if (!real) open_memory(); /* before the constructor has run */
    if (!free_at_ns || count < CHUNK) return real(target, source, count);
    if (target > source && (const char *)source + count > (char *)target)
        return real(target, source, count); /* overlapping: not in pieces */
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t bytes = count - done < CHUNK ? count - done : CHUNK;
        int64_t until_ns = reserve(bytes);
        real((char *)target + done, (const char *)source + done, bytes);
        while (now_ns() < until_ns) {
        }
    }
    return target;
}

void *memcpy(void *target, const void *source, size_t count) {
    return memmove(target, source, count);
}
