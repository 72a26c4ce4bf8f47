/* A network between ranks that delays, varies and loses packets, where the kernel has no netem.
 *
 *     slow_link PREFIX RANKS DELAY_US EXTRA_US EXTRA_PPM LOSS_PPM
 *
 * Makes the tunnel devices PREFIX0, PREFIX1, ..., prints "ready" and forwards packets between them
 * by the last byte of the destination address, which is 1 + rank. Every packet is DELAY_US late.
 * In windows of 50 ms, EXTRA_PPM of which are drawn, it is up to EXTRA_US later, as when others
 * fill a shared link. Packets never overtake each other. LOSS_PPM of them are dropped.
 * The devices vanish with the process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 16, MAX_PACKET = 2048, QUEUE = 16384 };
static const int64_t WINDOW_NS = 50 * 1000 * 1000;

struct packet {
    int64_t due_ns;
    int to;
    int size;
    unsigned char bytes[MAX_PACKET];
};

static struct packet queue[QUEUE]; /* a ring: due times only grow */
static unsigned head, tail;

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static int open_tunnel(const char *prefix, int rank) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s%d", prefix, rank);
    int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (file < 0 || ioctl(file, TUNSETIFF, &request) < 0) {
        perror("tunnel");
        exit(1);
    }
    return file;
}

static int64_t extra_ns(int64_t at_ns, int64_t extra_us, int extra_ppm) {
    static int64_t window = -1, drawn;
    if (at_ns / WINDOW_NS != window) {
        window = at_ns / WINDOW_NS;
        int late = random() % 1000000 < extra_ppm;
        drawn = late && extra_us ? random() % (extra_us * 1000) : 0;
    }
    return drawn;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int ranks = atoi(argv[2]), extra_ppm = atoi(argv[5]), loss_ppm = atoi(argv[6]);
    int64_t delay_ns = atoll(argv[3]) * 1000, extra_us = atoll(argv[4]), last_due_ns = 0;
    struct pollfd files[MAX_RANKS];
    if (ranks < 2 || ranks > MAX_RANKS) return 2;
    for (int rank = 0; rank < ranks; rank++) {
        files[rank].fd = open_tunnel(argv[1], rank);
        files[rank].events = POLLIN;
    }
    srandom(7);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int64_t now = now_ns();
        while (head != tail && queue[head % QUEUE].due_ns <= now) {
            struct packet *due = &queue[head++ % QUEUE];
            if (write(files[due->to].fd, due->bytes, due->size) < 0) { /* not up yet: lost */ }
        }
        struct timespec wait = {3600, 0};
        if (head != tail) {
            int64_t left = queue[head % QUEUE].due_ns - now;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
        }
        if (ppoll(files, ranks, &wait, NULL) <= 0) continue;
        now = now_ns();
        for (int rank = 0; rank < ranks; rank++) {
            while ((files[rank].revents & POLLIN) && tail - head < QUEUE) {
                struct packet *next = &queue[tail % QUEUE];
                int size = read(files[rank].fd, next->bytes, MAX_PACKET);
                if (size < 20) break;
                int to = next->bytes[19] - 1;
                int is_ours = next->bytes[0] >> 4 == 4 && to >= 0 && to < ranks;
                if (!is_ours || random() % 1000000 < loss_ppm) continue;
                int64_t due = now + delay_ns + extra_ns(now, extra_us, extra_ppm);
                next->due_ns = last_due_ns = due > last_due_ns ? due : last_due_ns;
                next->to = to;
                next->size = size;
                tail++;
            }
        }
    }
}
