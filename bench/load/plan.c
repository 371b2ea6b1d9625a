/* Reads a plan: how long to measure, and each stream of requests with its frames. */
#include "generator.h"

#include <stdio.h>
#include <stdlib.h>

static void read_frames(struct stream *stream)
{
    FILE *file = fopen(stream->frames_path, "rb");
    if (!file)
        fail("cannot read %s", stream->frames_path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), at = 0;
    rewind(file);
    char *data = malloc(size);
    if (fread(data, 1, size, file) != size)
        fail("cannot read all of %s", stream->frames_path);
    fclose(file);
    while (at + HEAD < size) {
        stream->frames = realloc(stream->frames, sizeof(struct frame) * (size_t)(stream->frame_count + 1));
        struct frame *frame = &stream->frames[stream->frame_count++];
        *frame = (struct frame){data + at, be32(data + at) + 4};
        at += frame->size;
    }
    if (at != size)
        fail("%s does not consist of frames", stream->frames_path);
}

static void set(struct stream *stream, const char *name, const char *value)
{
    struct { const char *name; int *field; } integers[] = {
        {"connections", &stream->connections}, {"in_flight", &stream->in_flight},
        {"follow", &stream->follow},           {"topic_ids", &stream->topic_ids},
        {"error_at", &stream->error_at},       {"error_stride", &stream->error_stride},
        {"error_count", &stream->error_count}, {"offset_at", &stream->offset_at},
        {"offset_stride", &stream->offset_stride}, {"port", &stream->port},
        {"sequence_at", &stream->sequence_at}, {"sequence_stride", &stream->sequence_stride},
        {"sequence_count", &stream->sequence_count}, {"sequence_step", &stream->sequence_step},
    };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(name, integers[i].name)) {
            *integers[i].field = atoi(value);
            return;
        }
    if (!strcmp(name, "rate"))
        stream->rate = atof(value);
    else if (!strcmp(name, "megabytes"))
        stream->megabytes = atof(value);
    else if (!strcmp(name, "crc_flips"))
        read_crc_flips(stream, value);
    else if (!strcmp(name, "name"))
        snprintf(stream->name, sizeof stream->name, "%s", value);
    else if (!strcmp(name, "host"))
        snprintf(stream->host, sizeof stream->host, "%s", value);
    else if (!strcmp(name, "frames"))
        snprintf(stream->frames_path, sizeof stream->frames_path, "%s", value);
    else
        fail("a plan has no %s", name);
}

void read_plan(const char *path)
{
    char line[2048];
    FILE *file = fopen(path, "r");
    if (!file)
        fail("cannot read %s", path);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "warm_up %lf", &warm_up) == 1 || sscanf(line, "seconds %lf", &seconds) == 1)
            continue;
        if (stream_count == STREAMS)
            fail("at most %d streams", STREAMS);
        struct stream *stream = &streams[stream_count++];
        stream->connections = stream->in_flight = 1;
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
            char *equals = strchr(word, '=');
            if (!equals)
                fail("%s is not name=value", word);
            *equals = 0;
            set(stream, word, equals + 1);
        }
        if (stream->in_flight > SLOTS)
            fail("at most %d in flight", SLOTS);
        if (stream->rate > 0)
            stream->interval = (int64_t)(1e9 / stream->rate);
        read_frames(stream);
    }
    fclose(file);
}
