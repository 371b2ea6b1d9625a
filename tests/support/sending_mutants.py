"""The two halves of D12, each replaced by the mistake of leaving it out.

A range of a file is sent as late as it leaves: what is cut meanwhile, and written anew, would
arrive as a mixture. Its connection is aborted before the cut, and a follower looks at all it gets.
"""

from typing import Any

import pytest

from tidelog.log import partition_log, pending_follow
from tidelog.log.log_files import LogFiles
from tidelog.partition import Partition
from tidelog.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, RawHeader


def cut_under_readers(patch: pytest.MonkeyPatch) -> None:
    """D12: what is still being sent goes on, whatever lies there by then."""
    cut: Any = Partition.cut

    def without_abort(self: Partition, *arguments: Any, **named: Any) -> None:
        self.readers = {}
        cut(self, *arguments, **named)

    patch.setattr(Partition, "cut", without_abort)


def take_any_batch(patch: pytest.MonkeyPatch) -> None:
    """D12: neither checksums nor epochs of what a leader sends are looked at."""

    def unchecked(_log: LogFiles, view: memoryview, *_leader: int) -> list[RawHeader]:
        headers: list[RawHeader] = []
        at = 0
        while len(view) - at >= HEADER_SIZE:
            raw: RawHeader = HEADER.unpack_from(view, at)
            at += LENGTH_OVERHEAD + raw[1]
            if at > len(view):
                break
            headers.append(raw)
        return headers

    for module in (partition_log, pending_follow):
        patch.setattr(module, "check_followed", unchecked)
