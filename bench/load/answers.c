/* Reads answers as far as a consumer must, to know the offset it goes on from. */
#include "generator.h"

struct reader { const char *at, *end; };

static void skip(struct reader *reader, uint64_t size)
{
    if (size > (uint64_t)(reader->end - reader->at))
        fail("an answer ends before its fields do");
    reader->at += size;
}

static uint64_t varint(struct reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const char *byte = reader->at;
        skip(reader, 1);
        value |= (uint64_t)(*byte & 0x7f) << shift;
        if (!(*byte & 0x80))
            return value;
    }
}

static void skip_tags(struct reader *reader)
{
    for (uint64_t count = varint(reader); count; count--) {
        varint(reader);
        skip(reader, varint(reader));
    }
}

void note_error(struct stream *stream, int code)
{
    if (!code)
        return;
    if (!stream->errors++)
        stream->first_error = code;
}

/* The offset after the last whole batch, or -1. */
static int64_t end_of(struct stream *stream, const char *records, uint64_t size)
{
    int64_t next = -1;
    while (size >= BATCH_HEADER) {
        uint64_t batch = 12 + (uint64_t)be32(records + 8);
        if (batch > size)
            break;
        next = be64(records) + be32(records + 23) + 1;
        stream->batch_bytes += batch;
        records += batch;
        size -= batch;
    }
    return next;
}

static void follow_partition(struct connection *connection, struct reader *reader)
{
    struct stream *stream = connection->stream;
    const char *fixed = reader->at;
    skip(reader, 4 + 2 + 8 + 8 + 8);
    note_error(stream, be16(fixed + 4));
    for (uint64_t aborted = varint(reader); aborted > 1; aborted--) {
        skip(reader, 16);
        skip_tags(reader);
    }
    skip(reader, 4);
    uint64_t size = varint(reader);
    size -= size > 0;
    const char *records = reader->at;
    skip(reader, size);
    int64_t end = end_of(stream, records, size), high_watermark = be64(fixed + 6);
    char *offset = connection->own.data + stream->offset_at + stream->offset_stride * (int)be32(fixed);
    if (offset + 8 > connection->own.data + connection->own.size)
        fail("an answer has a partition that was not asked for");
    if (end >= 0)
        put64(offset, end);
    if (be64(offset) >= high_watermark && high_watermark > 0)
        put64(offset, be64(fixed + 22));
    skip_tags(reader);
}

void follow(struct connection *connection, const char *answer, size_t size)
{
    struct reader reader = {answer + 4, answer + size};
    skip_tags(&reader);
    const char *fixed = reader.at;
    skip(&reader, 4 + 2 + 4);
    note_error(connection->stream, be16(fixed + 4));
    for (uint64_t topics = varint(&reader); topics > 1; topics--) {
        skip(&reader, connection->stream->topic_ids ? 16 : varint(&reader) - 1);
        for (uint64_t partitions = varint(&reader); partitions > 1; partitions--)
            follow_partition(connection, &reader);
        skip_tags(&reader);
    }
}
