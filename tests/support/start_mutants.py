"""Rules of where logs start, each replaced by the mistake that somebody could make.

As with the mutants of the machine: one small production function is put in the place of another.
"""

from typing import Any

import pytest

from tidelog.base.errors import ErrorCode
from tidelog.cluster import elections
from tidelog.log import retention
from tidelog.replication.replica import Replica
from tidelog.replication.verdicts import Verdict


def delete_beyond_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """V17: what is not committed is deleted too."""

    def delete_records(log: Any, before: int, _high_watermark: int) -> int:
        retention.advance_log_start(log, min(max(before, 0), log.log_end_offset))
        return int(log.log_start_offset)

    patch.setattr(retention, "delete_records", delete_records)


def move_the_start_back(patch: pytest.MonkeyPatch) -> None:
    """V17: whoever asks for less gets it."""

    def advance_log_start(log: Any, to: int) -> None:
        log.log_start_offset = to

    patch.setattr(retention, "advance_log_start", advance_log_start)


def forget_epochs_before_the_start_is_saved(patch: pytest.MonkeyPatch) -> None:
    """V6: what comes back after a crash has lost its epochs."""
    advance = retention.advance_log_start

    def advance_log_start(log: Any, to: int) -> None:
        advance(log, to)
        log.epochs.advance_log_start(to)

    patch.setattr(retention, "advance_log_start", advance_log_start)


def stay_below_the_start(patch: pytest.MonkeyPatch) -> None:
    """X23: a follower that ends below its leader's start keeps what it has."""
    answered = Replica.answered

    def keep(self: Replica, asked_epoch: int, error: int, *rest: Any) -> Verdict:
        if error == ErrorCode.offset_out_of_range:
            return Verdict.back_off
        return answered(self, asked_epoch, error, *rest)

    patch.setattr(Replica, "answered", keep)


def ask_nobody_where_it_starts(patch: pytest.MonkeyPatch) -> None:
    """S5: records are said to be deleted when the leader has done so."""
    patch.setattr(Replica, "low_watermark", lambda self: self.log.log_start_offset)


def trust_any_epoch_over_an_empty_log(patch: pytest.MonkeyPatch) -> None:
    """D10: a log from which everything was deleted is taken for one that never had anything."""
    best = elections._best

    def ranked(partition: Any, candidates: Any, reports: Any, situation: Any) -> int:
        known = {member: one for member, one in reports.items() if one.last_epoch >= 0}
        return best(partition, candidates, known or reports, situation)

    patch.setattr(elections, "_best", ranked)
