/* The least a server can do: answers every request with 64 bytes that a Produce request for one
 * partition takes for success. What the generator reaches against it is the generator's own limit.
 * Prints its port and serves one connection after the other until it is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 4 << 20, ANSWER = 64, HEAD = 12 };
static char in[ROOM], out[ROOM];

static uint32_t be32(const char *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }

static void serve(int fd)
{
    size_t filled = 0;
    ssize_t got;
    while ((got = recv(fd, in + filled, sizeof in - filled, 0)) > 0) {
        filled += (size_t)got;
        size_t done = 0, answered = 0;
        while (filled - done >= HEAD && filled - done >= be32(in + done) + 4) {
            char *answer = out + answered;
            memset(answer, 0, ANSWER);
            uint32_t size = htobe32(ANSWER - 4);
            memcpy(answer, &size, 4);
            memcpy(answer + 4, in + done + 8, 4);
            answered += ANSWER;
            done += be32(in + done) + 4;
        }
        filled -= done;
        memmove(in, in + done, filled);
        if (answered && send(fd, out, answered, MSG_NOSIGNAL) < 0)
            return;
    }
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 16))
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        serve(fd);
    }
    return 0;
}
