"""A fetch that names very many partitions, served in slices so that others come in between.

Its positions are placed and looked at some at a time, and so is its answer made. While it waits for
something to come it is like any other: what came behind it on its connection is served then.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Node, Part, Request
from tidelog.handlers.fetching import Answer, Fetching
from tidelog.handlers.found import Found, copied, is_cold, is_news, row_of, tag_diverging
from tidelog.handlers.rows import work_in_slices
from tidelog.handlers.warming import warm
from tidelog.log.partition_log import Slice
from tidelog.serving.fetch_sessions import (
    FIRST_EPOCH,
    NO_FOLLOWER,
    NO_SESSION,
    FetchSession,
    Position,
)
from tidelog.slices import Ask, Sliced
from tidelog.wire.fetch import FetchAnswer, FetchRequest
from tidelog.wire.fetch_in_steps import write_in_steps

ROWS_MAX: Final = 1_000
"""A fetch that names more is not served in one go."""
STEP_ROWS: Final = 20


def fetching_in_slices(node: Node, request: Request, session: FetchSession) -> Sliced:
    fetch: FetchRequest = request.body
    yield from _placing(session, fetch)
    if session.id != NO_SESSION and not node.sessions.remember(session):
        if fetch.session_epoch != FIRST_EPOCH:
            request.answer(Answer(0, int(ErrorCode.fetch_session_id_not_found), ()))
            return
        session = FetchSession(NO_SESSION)
        session.follower = fetch.replica_id
        yield from _placing(session, fetch)
    yield from WideFetching(node, request, session).starting()


def _placing(session: FetchSession, fetch: FetchRequest) -> Sliced:
    for at in range(0, len(fetch.forgotten), STEP_ROWS):
        session.forget(fetch.forgotten[at : at + STEP_ROWS])
        yield None
    for at in range(0, len(fetch.partitions), STEP_ROWS):
        session.place(fetch.partitions[at : at + STEP_ROWS])
        yield None


class WideFetching(Fetching):
    __slots__ = ("_is_late",)

    def __init__(self, node: Node, request: Request, session: FetchSession) -> None:
        super().__init__(node, request, session)
        self._is_late = False
        """Whether something became ready that was looked at before."""

    def starting(self) -> Sliced:
        while True:
            found, is_enough = yield from self._looking()
            cold = self._cold
            if cold is None:
                break
            yield partial(self._thaw, found, cold)
        # Another fetch may have taken the session over meanwhile.
        self._session.interrupt()
        if is_enough or self._fetch.max_wait_ms <= 0:
            yield from self._finishing(found)
        else:
            self._wait(found)
            if self._is_late:
                self.wake()
            self._request.let_others_in()

    def _looking(self) -> Generator[Ask | None, None, tuple[list[Found], bool]]:
        """As `_look`. What becomes ready meanwhile stays so."""
        session = self._session
        if not session.ready:
            return self._look()
        left = list(session.ready)
        session.ready = {}
        found: list[Found] = []
        unserved: dict[Position, None] = {}
        is_enough = False
        size = 0
        for at in range(0, len(left), STEP_ROWS):
            woken, session.ready = session.ready, dict.fromkeys(left[at : at + STEP_ROWS])
            here, is_enough_here = self._look(size)
            is_enough = is_enough or is_enough_here
            for one in here:
                if isinstance(one.records, Slice):
                    size += one.size + one.records.left_out
                    self._note_reader(one)
            found += here
            unserved |= session.ready
            session.ready = woken
            yield None
        served = {one.position: None for one in found if one.position in unserved}
        skipped = {one: None for one in unserved if one not in served}
        self._is_late = bool(session.ready)
        session.ready = skipped | served | session.ready
        return found, is_enough

    def _note_reader(self, found: Found) -> None:
        """Pages that are to be sent must not change before they are (D12)."""
        partition = found.partition
        if self._follower != NO_FOLLOWER and partition is not None:
            partition.readers[self._follower] = self._request.connection

    def _finish(self, found: list[Found]) -> Answer | None:
        work_in_slices(self._node, self._request, self._finishing(found))
        return None

    def _finishing(self, found: list[Found]) -> Sliced:
        session = self._session
        by_position = {here.position: here for here in found}
        told = session.positions.values() if session.is_full else [*by_position, *self._news]
        positions = list(dict.fromkeys(told))
        rows: list[Found] = []
        cold: list[Found] = []
        for at in range(0, len(positions), STEP_ROWS):
            for position in positions[at : at + STEP_ROWS]:
                here = by_position.get(position) or self._standing(position)
                if session.is_full or is_news(here):
                    rows.append(here)
                    self._tell(here)
                    if is_cold(here):
                        cold.append(here)
            yield None
        if session.id == NO_SESSION:
            keys = list(session.positions)
            for at in range(0, len(keys), STEP_ROWS):
                session.forget(keys[at : at + STEP_ROWS])
                yield None
            session.end()
        seen: dict[int, Found] = {}

        def warming(go_on: Callable[[], None]) -> None:
            def warmed(found: dict[int, Found]) -> None:
                seen.update(found)
                go_on()

            warm(self._node, cold, warmed)

        if cold:
            yield warming
        yield from self._packing([seen.get(id(here), here) for here in rows])

    def _tell(self, here: Found) -> None:
        position = here.position
        position.told_high_watermark = here.high_watermark
        position.told_log_start = here.log_start_offset
        if here.size and here.partition is not None:
            self._count(here.partition, here.size)

    def _packing(self, rows: list[Found]) -> Sliced:
        request = self._request
        written: list[FetchAnswer] = []
        for at in range(0, len(rows), STEP_ROWS):
            step = list(map(copied, rows[at : at + STEP_ROWS]))
            rows[at : at + STEP_ROWS] = step
            written += [row_of(here, request.version) for here in step]
            yield None
        texts = yield from write_in_steps(
            request.correlation_id,
            request.version,
            self._session.id,
            written,
            STEP_ROWS,
        )
        tag_diverging(request, texts, rows)
        parts: list[Part] = []
        together = [texts[0]]
        for number, here in enumerate(rows):
            if isinstance(here.records, bytes):
                together.append(here.records)
            elif here.records is not None:
                parts += [b"".join(together), here.records]
                together = []
            together.append(texts[number + 1])
            if number % STEP_ROWS == 0:
                yield None
        request.answer_packed([*parts, b"".join(together)])
