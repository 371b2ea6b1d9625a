"""Leaving out what transactions wrote that were aborted.

An answer for readers of committed records names the aborted transactions that reach into it, each
by its producer and where it began; its marker in the log says where it ends. What is left is handed
on as it is, in as few pieces as there are gaps.
"""

from collections.abc import Iterator, Sequence

from tidelog.records.batch import walk
from tidelog.records.control import read_end_transaction


def without_aborted(data: memoryview, aborted: Sequence[tuple[int, int]]) -> Iterator[memoryview]:
    """Whole batches, without those of aborted transactions (producer id, first offset), and
    without markers."""
    coming = sorted(aborted, key=lambda one: one[1])
    open_now: set[int] = set()
    kept_from = 0
    for at, header in walk(data):
        while coming and coming[0][1] <= header.last_offset:
            open_now.add(coming.pop(0)[0])
        is_left_out = header.is_control
        if header.is_control:
            marker = read_end_transaction(data[at : at + header.size])
            if marker is not None and not marker.committed:
                open_now.discard(marker.producer_id)
        elif header.is_transactional:
            is_left_out = header.producer_id in open_now
        if is_left_out:
            if at > kept_from:
                yield data[kept_from:at]
            kept_from = at + header.size
    if kept_from < len(data):
        yield data[kept_from:]
