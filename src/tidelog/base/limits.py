"""Bounds on what others can make this process allocate or do."""

from typing import Final

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What one batch may decompress to, whatever its topic allows."""

RECEIVED_BYTES_MAX: Final = 512 * 1024
"""What is received at once, and so served in one turn, while nothing large is on its way. Five
requests of six batches of 16 KB, as Java's producers have them under way, are a little less."""

_DECOMPRESSION_FACTOR: Final = 20


def decompressed_bytes_max(max_message_bytes: int) -> int:
    """What a batch of a topic with this `max.message.bytes` may decompress to."""
    return min(max_message_bytes * _DECOMPRESSION_FACTOR, DECOMPRESSED_BYTES_MAX)
