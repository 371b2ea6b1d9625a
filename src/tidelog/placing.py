"""Where new replicas go, and how replicas come and go while the loop does other things.

A new replica goes to the live dir that holds the fewest; if that dir fails over it, to another.
Deleted ones are out of their dirs at once, and their folders are renamed when nothing is being
written to them any more. Whoever asks is called back in either case; what could not be made is
not in any dir then.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.disk_work import COMMON, MAKING, DiskWork
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replicas import NewReplica, deleting, making
from tidelog.log.steps import Steps
from tidelog.log.topic_ids import noting_ids
from tidelog.slow_appends import SlowAppends

MANY: Final = 16
"""So many replicas at a time are made as files become free."""

Then = Callable[[], None]

_log = logging.getLogger("tidelog.hosting")


class Placing:
    def __init__(self, logs: Logs, work: DiskWork, slow: SlowAppends) -> None:
        self._logs = logs
        self._work = work
        self._slow = slow
        self._leaving: set[tuple[str, TopicPartition]] = set()
        """By dir, what is deleted as soon as nothing is being written to it."""
        self._put_off: list[Then] = []
        self._left_out: set[TopicPartition] = set()
        """What there was no room for."""

    # -- making

    def make(self, news: Sequence[NewReplica], then: Then) -> None:
        online, room = self._logs.online, self._logs.has_room_for(len(news))
        if room < len(news):
            left = [new.partition for new in news[room:]]
            self._left_out.update(left)
            why = "too few files may be open (`ulimit -n`)"
            _log.error("not made replicas=%d why=%s", len(left), why)
            news = news[:room]
        if not news or not online:
            then()
            return
        if any((d.path, new.partition) in self._leaving for d in online for new in news):
            # What makes room for it is not in the queue yet, and must be before it.
            self._put_off.append(partial(self.make, news, then))
            return
        shares = _shares(news, online)
        ended = _after(len(shares), partial(self._look_again, news, len(online), then))
        for log_dir, lane, share in shares:
            steps = _telling(making(log_dir, share), ended)
            self._work.run("making replicas", log_dir, steps, lane)

    def has_room_again(self) -> bool:
        """Whether there is room by now for all that were left out, or for many: then they are to be
        named once more. Says so once."""
        wanted = min(len(self._left_out), MANY)
        if not wanted or self._logs.has_room_for(wanted) < wanted:
            return False
        self._left_out.clear()
        return True

    def _look_again(self, news: Sequence[NewReplica], online_before: int, then: Then) -> None:
        """What a dir that has failed meanwhile did not make is made elsewhere."""
        online = self._logs.online
        missing = [new for new in news if not any(new.partition in d.logs for d in online)]
        if missing and len(online) < online_before:
            self.make(missing, then)
        else:
            then()

    def note_ids(self, ids: Mapping[LogDir, Mapping[TopicPartition, bytes]], then: Then) -> None:
        if not ids:
            then()
            return
        ended = _after(len(ids), then)
        for log_dir, found in ids.items():
            steps = _telling(noting_ids(log_dir, found), ended)
            self._work.run("noting topic ids", log_dir, steps)

    # -- deleting

    def delete(self, partitions: Sequence[TopicPartition], then: Then) -> None:
        """Those that are here. In a dir that is offline their files stay."""
        leaving: list[tuple[LogDir, list[PartitionLog]]] = []
        for log_dir in self._logs.dirs:
            logs = log_dir.let_go([name for name in partitions if name in log_dir.logs])
            if logs and log_dir.failure is None:
                leaving.append((log_dir, logs))
        if not leaving:
            then()
            return
        ended = _after(len(leaving), then)
        for log_dir, logs in leaving:
            self._leaving |= {(log_dir.path, log.partition) for log in logs}
            # What is being written now may be a new segment, by its name.
            self._slow.write(logs[0], _nothing, partial(self._rename, log_dir, logs, ended))

    def _rename(
        self, log_dir: LogDir, logs: list[PartitionLog], ended: Then, _end: Exception | None
    ) -> None:
        self._work.run("deleting replicas", log_dir, _telling(deleting(log_dir, logs), ended))
        self._leaving -= {(log_dir.path, log.partition) for log in logs}
        put_off, self._put_off = self._put_off, []
        for make in put_off:
            make()


def _shares(
    news: Sequence[NewReplica], online: list[LogDir]
) -> list[tuple[LogDir, str, list[NewReplica]]]:
    """Which dir makes which, and in which lane: where something of the same name was deleted just
    now, that comes first."""
    counts = [len(log_dir.logs) for log_dir in online]
    shares: dict[tuple[int, str], list[NewReplica]] = {}
    for new in news:
        emptiest = counts.index(min(counts))
        counts[emptiest] += 1
        log_dir = online[emptiest]
        is_known = new.partition in log_dir.unsettled or log_dir.is_noted(new.partition)
        shares.setdefault((emptiest, COMMON if is_known else MAKING), []).append(new)
    return [(online[number], lane, share) for (number, lane), share in shares.items()]


def _telling(steps: Steps, ended: Then) -> Steps:
    try:
        yield from steps
    except Exception:
        ended()
        raise
    ended()


def _after(count: int, then: Then) -> Then:
    """To be called so many times."""
    left = count

    def ended() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    return ended


def _nothing() -> None:
    return
