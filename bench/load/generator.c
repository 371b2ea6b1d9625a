/* Sends Kafka requests that were encoded beforehand, and counts and times the answers.
 *
 *     generator HOST PORT PLAN
 *
 * The plan is lines of text: `warm_up SECONDS`, `seconds SECONDS`, and a line of `name=value` for
 * each stream of requests (bench/load/generator.py writes them, and says what the names mean). A
 * stream may have a host and port of its own: a cluster is loaded with one stream for each broker.
 * All streams share one thread. A frame is sent as it is but for its correlation id, and for the
 * sequences of an idempotent producer; of an answer only the error codes are looked at, and where a
 * stream follows a log the headers of its batches.
 * Prints `measuring` when it is warm, and then a line `{...}` for each stream. */
#define _GNU_SOURCE
#include "generator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static const int64_t WARM_UP_MAX = 60 * 1000000000LL;
static const int64_t DRAIN = 3 * 1000000000LL;

struct stream streams[STREAMS];
int stream_count;
double warm_up = 0.5, seconds = 5;
static struct connection *connections[CONNECTIONS];
static int connection_count, poller, is_draining;

_Noreturn void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("generator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static void open_connection(struct stream *stream, const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("%s is not an IPv4 address", host);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("%s:%d: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connection_count == CONNECTIONS)
        fail("at most %d connections", CONNECTIONS);
    struct connection *connection = calloc(1, sizeof *connection);
    connections[connection_count++] = connection;
    connection->fd = fd;
    connection->stream = stream;
    connection->room = FIRST_BUFFER;
    connection->in = malloc(FIRST_BUFFER);
    if (stream->follow) {
        struct frame *first = &stream->frames[0];
        connection->own = (struct frame){malloc(first->size), first->size};
        memcpy(connection->own.data, first->data, first->size);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static void flush(struct connection *connection)
{
    while (connection->sending != connection->next) {
        struct iovec vectors[IOVECS];
        int count = 0;
        size_t skip = connection->progress;
        for (uint32_t n = connection->sending; n != connection->next && count + 2 <= IOVECS; n++) {
            struct frame *frame = connection->frame_of[n % SLOTS];
            char *head = connection->heads[n % SLOTS];
            if (skip < HEAD)
                vectors[count++] = (struct iovec){head + skip, HEAD - skip};
            size_t from = skip < HEAD ? HEAD : skip;
            vectors[count++] = (struct iovec){frame->data + from, frame->size - from};
            skip = 0;
        }
        struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            fail("%s: sending: %s", connection->stream->name, strerror(errno));
        int is_full = sent < 0;
        while (sent > 0) {
            size_t left = connection->frame_of[connection->sending % SLOTS]->size - connection->progress;
            size_t taken = (size_t)sent < left ? (size_t)sent : left;
            sent -= (ssize_t)taken;
            connection->progress += taken;
            if (taken == left) {
                connection->progress = 0;
                connection->sending++;
            }
        }
        if (is_full)
            break;
    }
    int wants_out = connection->sending != connection->next;
    if (wants_out != connection->wants_out) {
        struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.ptr = connection};
        epoll_ctl(poller, EPOLL_CTL_MOD, connection->fd, &event);
        connection->wants_out = wants_out;
    }
}

static void start_request(struct connection *connection, int64_t when)
{
    struct stream *stream = connection->stream;
    uint32_t slot = connection->next % SLOTS;
    struct frame *frame =
        stream->follow ? &connection->own : &stream->frames[stream->turn++ % stream->frame_count];
    if (stream->sequence_count)
        stamp(stream, frame);
    connection->frame_of[slot] = frame;
    connection->started[slot] = when;
    memcpy(connection->heads[slot], frame->data, HEAD);
    put32(connection->heads[slot] + 8, connection->next);
    connection->next++;
}

static void fill(struct connection *connection, int64_t at)
{
    struct stream *stream = connection->stream;
    if (!is_draining && !stream->interval)
        while (connection->next - connection->answered < (uint32_t)stream->in_flight)
            start_request(connection, at);
    flush(connection);
}

/* A paced request counts from when it was due, not from when there was room to send it. */
static void start_due(struct stream *stream, int first, int64_t at)
{
    int turn = 0;
    while (!is_draining && stream->next_due <= at) {
        struct connection *connection = connections[first + turn++ % stream->connections];
        if (connection->next - connection->answered < (uint32_t)stream->in_flight)
            start_request(connection, stream->next_due);
        else if (turn <= stream->connections)
            continue;
        else
            return;
        stream->next_due += stream->interval;
        flush(connection);
        turn = 0;
    }
}

static void take_answer(struct connection *connection, const char *answer, size_t size, int64_t at)
{
    struct stream *stream = connection->stream;
    if (connection->answered == connection->next || be32(answer) != connection->answered)
        fail("%s: an answer to %u where one to %u was due", stream->name, be32(answer), connection->answered);
    uint32_t slot = connection->answered++ % SLOTS;
    note_latency(stream, at - connection->started[slot]);
    stream->requests++;
    stream->bytes_out += connection->frame_of[slot]->size;
    stream->bytes_in += size + 4;
    for (int i = 0; i < stream->error_count; i++) {
        size_t code = (size_t)(stream->error_at + i * stream->error_stride);
        if (code + 2 > size)
            fail("%s: an answer of %zu bytes has no error code %d", stream->name, size, i);
        note_error(stream, be16(answer + code));
    }
    if (stream->follow)
        follow(connection, answer, size);
}

static void receive(struct connection *connection)
{
    size_t wanted = connection->room - connection->filled;
    ssize_t got = recv(connection->fd, connection->in + connection->filled,
                       wanted < READ_MAX ? wanted : READ_MAX, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        fail("%s: the broker closed the connection", connection->stream->name);
    connection->filled += (size_t)got;
    int64_t at = now();
    size_t done = 0;
    while (connection->filled - done >= 4) {
        size_t size = be32(connection->in + done);
        if (size > (1u << 30))
            fail("an answer of %zu bytes", size);
        if (size + 4 > connection->room) {
            connection->room = size + 4;
            connection->in = realloc(connection->in, connection->room);
        }
        if (connection->filled - done < size + 4)
            break;
        take_answer(connection, connection->in + done + 4, size, at);
        done += size + 4;
    }
    connection->filled -= done;
    if (done && connection->filled)
        memmove(connection->in, connection->in + done, connection->filled);
    if (done)
        fill(connection, at);
}

static int is_done(int64_t at, int64_t until)
{
    for (int i = 0; i < stream_count; i++) {
        struct stream *stream = &streams[i];
        uint64_t moved = stream->follow ? stream->batch_bytes : stream->bytes_out;
        if (stream->megabytes > 0 && (double)moved >= stream->megabytes * 1e6)
            return 1;
    }
    return at >= until;
}

/* The first requests for a partition may take a broker seconds: those are not what is measured. */
static int is_warm(int64_t at, int64_t warm)
{
    for (int i = 0; i < stream_count; i++)
        if (streams[i].requests < (uint64_t)(ANSWERS_FIRST * streams[i].connections))
            return at >= warm + WARM_UP_MAX;
    return at >= warm;
}

static int is_idle(void)
{
    for (int i = 0; i < connection_count; i++)
        if (connections[i]->answered != connections[i]->next)
            return 0;
    return 1;
}

static void arm(int timer, int64_t at)
{
    struct itimerspec when = {.it_value = {at / SECOND, at % SECOND}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void turn(int timer, int timeout_ms)
{
    struct epoll_event events[256];
    int64_t earliest = 0, at = now();
    for (int i = 0; i < stream_count; i++) {
        int64_t due = streams[i].next_due; /* what is overdue waits for an answer, not for a time */
        if (streams[i].interval && due > at && (!earliest || due < earliest))
            earliest = due;
    }
    if (earliest && !is_draining)
        arm(timer, earliest);
    int count = epoll_wait(poller, events, 256, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        uint64_t expirations;
        if (!connection) {
            if (read(timer, &expirations, 8) < 0 && errno != EAGAIN)
                fail("timer: %s", strerror(errno));
            continue;
        }
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(connection);
        if (events[i].events & EPOLLOUT)
            flush(connection);
    }
    int first = 0;
    for (int i = 0; i < stream_count; first += streams[i++].connections)
        if (streams[i].interval)
            start_due(&streams[i], first, now());
}

static double own_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void measure(int timer)
{
    for (int i = 0; i < stream_count; i++)
        forget(&streams[i]);
    puts("measuring");
    fflush(stdout);
    double own = own_seconds();
    int64_t began = now(), until = began + (int64_t)(seconds * 1e9), at;
    while (!is_done(at = now(), until))
        turn(timer, 100);
    own = own_seconds() - own;
    for (int i = 0; i < stream_count; i++)
        print_stream(&streams[i], (double)(at - began) / 1e9, own);
    fflush(stdout);
}

static void warm_up_first(int timer)
{
    int64_t at = now(), warm = at + (int64_t)(warm_up * 1e9);
    for (int i = 0; i < stream_count; i++)
        streams[i].next_due = at;
    for (int i = 0; i < connection_count; i++)
        fill(connections[i], at);
    while (!is_warm(now(), warm))
        turn(timer, 100);
}

/* Leaves the broker without work. */
static void drain(int timer)
{
    int64_t until = now() + DRAIN;
    is_draining = 1;
    while (!is_idle() && now() < until)
        turn(timer, 100);
}

int main(int count, char **arguments)
{
    if (count != 4)
        fail("usage: generator HOST PORT PLAN");
    read_plan(arguments[3]);
    prctl(PR_SET_TIMERSLACK, 1);
    poller = epoll_create1(0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    for (int i = 0; i < stream_count; i++)
        for (int n = 0; n < streams[i].connections; n++)
            if (streams[i].port)
                open_connection(&streams[i], streams[i].host, streams[i].port);
            else
                open_connection(&streams[i], arguments[1], atoi(arguments[2]));
    warm_up_first(timer);
    measure(timer);
    drain(timer);
    return 0;
}
