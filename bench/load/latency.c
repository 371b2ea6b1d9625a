/* Latencies in buckets, and a stream's figures as a line of JSON. */
#include "generator.h"

#include <stdio.h>

/* A bucket is 1/64 as wide as the latency it starts with. */
static int bucket_of(int64_t latency)
{
    if (latency < 64)
        return latency < 0 ? 0 : (int)latency;
    int shift = 63 - __builtin_clzll((uint64_t)latency) - 6;
    int bucket = 64 * (shift + 1) + (int)((latency >> shift) - 64);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double microseconds_at(const struct stream *stream, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)stream->requests), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += stream->buckets[bucket];
        if (seen > wanted) {
            int shift = bucket / 64 - 1;
            int64_t start = bucket < 64 ? bucket : (int64_t)(bucket % 64 + 64) << shift;
            return (double)start / 1e3;
        }
    }
    return (double)stream->slowest / 1e3;
}

void note_latency(struct stream *stream, int64_t latency)
{
    stream->buckets[bucket_of(latency)]++;
    if (latency > stream->slowest)
        stream->slowest = latency;
}

/* What was counted until now; errors are never forgotten. */
void forget(struct stream *stream)
{
    stream->requests = stream->bytes_out = stream->bytes_in = stream->batch_bytes = 0;
    stream->slowest = 0;
    memset(stream->buckets, 0, sizeof stream->buckets);
}

void print_stream(const struct stream *s, double elapsed, double own_cpu_seconds)
{
    printf("{\"name\": \"%s\", \"seconds\": %.6f, \"requests\": %lu, \"bytes_out\": %lu, "
           "\"bytes_in\": %lu, \"batch_bytes\": %lu, \"errors\": %lu, \"first_error\": %d, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, "
           "\"own_cpu_seconds\": %.4f}\n",
           s->name, elapsed, s->requests, s->bytes_out, s->bytes_in, s->batch_bytes, s->errors,
           s->first_error, microseconds_at(s, 0.5), microseconds_at(s, 0.99),
           microseconds_at(s, 0.999), (double)s->slowest / 1e3, own_cpu_seconds);
}
