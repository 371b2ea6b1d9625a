/* What the files of the generator share: a stream of requests, and a connection that carries it. */
#ifndef GENERATOR_H
#define GENERATOR_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    SLOTS = 1024,           /* requests that can wait for an answer on one connection */
    HEAD = 12,              /* length, api key, version, correlation id */
    IOVECS = 64,
    STREAMS = 8,
    CONNECTIONS = 4096,
    BUCKETS = 64 * 40,
    BATCH_HEADER = 61,
    FIRST_BUFFER = 1 << 18,
    READ_MAX = 1 << 20,
    ANSWERS_FIRST = 10,     /* to a connection, before it counts as warm */
    SEQUENCE_BITS = 32,
    SEQUENCE_AFTER_CRC = 36, /* bytes, in a batch */
};

struct frame { char *data; size_t size; };

struct stream {
    char name[32], frames_path[512];
    char host[64];          /* and port: of the stream's own broker, if it has one */
    int port;
    int connections, in_flight, follow, topic_ids;
    double rate;            /* requests a second over all connections; 0 is as many as possible */
    double megabytes;       /* the measuring ends when this stream has moved so many; 0 is never */
    int error_at, error_stride, error_count;
    int offset_at, offset_stride;
    int sequence_at, sequence_stride, sequence_count, sequence_step;
    uint32_t crc_flips[SEQUENCE_BITS], next_sequence;
    struct frame *frames;
    int frame_count, turn;
    int64_t next_due, interval;
    uint64_t requests, bytes_out, bytes_in, batch_bytes, errors;
    int first_error;
    uint64_t buckets[BUCKETS];
    int64_t slowest;
};

struct connection {
    int fd, wants_out;
    struct stream *stream;
    uint32_t next, sending, answered;   /* request numbers: to start, to send, to be answered */
    size_t progress;                    /* of the request being sent */
    char heads[SLOTS][HEAD];
    struct frame *frame_of[SLOTS];
    int64_t started[SLOTS];
    struct frame own;                   /* the request of a stream that follows a log */
    char *in;                           /* answers as they come, in `room` bytes */
    size_t filled, room;
};

extern struct stream streams[STREAMS];
extern int stream_count;
extern double warm_up, seconds;

_Noreturn void fail(const char *format, ...);

/* plan.c */
void read_plan(const char *path);

/* latency.c */
void note_latency(struct stream *stream, int64_t latency);
void forget(struct stream *stream);
void print_stream(const struct stream *stream, double elapsed, double own_cpu_seconds);

/* sequences.c */
void read_crc_flips(struct stream *stream, const char *text);
void stamp(struct stream *stream, struct frame *frame);

/* answers.c */
void note_error(struct stream *stream, int code);
void follow(struct connection *connection, const char *answer, size_t size);

static inline uint32_t be32(const char *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
static inline int64_t be64(const char *at) { uint64_t v; memcpy(&v, at, 8); return (int64_t)be64toh(v); }
static inline int be16(const char *at) { return (int16_t)((uint8_t)at[0] << 8 | (uint8_t)at[1]); }
static inline void put32(char *at, uint32_t value) { value = htobe32(value); memcpy(at, &value, 4); }
static inline void put64(char *at, int64_t value) { uint64_t v = htobe64((uint64_t)value); memcpy(at, &v, 8); }

#endif
