/* Batches of an idempotent producer: each time one is sent it has the sequence that is next.
 *
 * The sequence is under the batch's CRC. As a CRC is linear, it need not be computed again: whoever
 * wrote the plan says by what each bit of the sequence changes it. */
#include "generator.h"

#include <stdlib.h>

void read_crc_flips(struct stream *stream, const char *text)
{
    for (int bit = 0; bit < SEQUENCE_BITS; bit++) {
        char *end;
        stream->crc_flips[bit] = (uint32_t)strtoul(text, &end, 16);
        if (end == text || (*end != ',' && bit < SEQUENCE_BITS - 1))
            fail("crc_flips are not %d numbers", SEQUENCE_BITS);
        text = end + 1;
    }
}

void stamp(struct stream *stream, struct frame *frame)
{
    for (int i = 0; i < stream->sequence_count; i++) {
        char *sequence = frame->data + stream->sequence_at + i * stream->sequence_stride;
        char *crc = sequence - SEQUENCE_AFTER_CRC;
        uint32_t changed = be32(sequence) ^ stream->next_sequence, sum = be32(crc);
        for (int bit = 0; changed >> bit; bit++)
            if (changed >> bit & 1)
                sum ^= stream->crc_flips[bit];
        put32(sequence, stream->next_sequence);
        put32(crc, sum);
    }
    stream->next_sequence += (uint32_t)stream->sequence_step;
}
