"""Writes that are more than one `multi`, and work that must not overlap.

ZooKeeper takes a multi as one packet, so long lists are cut into parts of at most a hundred
operations. Each part begins with a check of the controller epoch: a broker that is no longer
controller can change nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Operation,
    Trouble,
    Written,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Loop
from tidelog.cluster import paths

OPERATIONS_MAX: Final = 100

Result = TypeVar("Result")
Ask = Callable[[Callable[[Result], None]], None]
"""Something that answers later, once."""
Job = Callable[[Callable[[], None]], None]


def pack(groups: Iterable[Sequence[Operation]], fence: Check) -> Iterator[list[Operation]]:
    """Parts of at most OPERATIONS_MAX that keep order and each group together; each is made when
    it is wanted, so that a topic of ten thousand partitions does not hold up the loop."""
    part: list[Operation] = [fence]
    for group in groups:
        assert len(group) < OPERATIONS_MAX, f"{len(group)} operations belong together"
        if len(part) + len(group) > OPERATIONS_MAX:
            yield part
            part = [fence]
        part.extend(group)
    if len(part) > 1:
        yield part


def write_parts(
    coordination: Coordination,
    parts: Iterator[Sequence[Operation]],
    done: Callable[[CoordinationError | None], None],
) -> None:
    """One part after the other; the first that fails ends it."""
    part = next(parts, None)
    if part is None:
        done(None)
        return

    def answered(result: list[Written] | CoordinationError) -> None:
        if isinstance(result, CoordinationError):
            done(result)
        else:
            write_parts(coordination, parts, done)

    coordination.write(part, answered)


def gather(asks: Sequence[Ask[Result]], then: Callable[[list[Result]], None]) -> None:
    """Asks all at once; goes on with the answers in the order of the questions."""
    if not asks:
        then([])
        return
    answers: dict[int, Result] = {}

    def answered(at: int, result: Result) -> None:
        answers[at] = result
        if len(answers) == len(asks):
            then([answers[number] for number in range(len(asks))])

    for number, ask in enumerate(asks):
        ask(partial(answered, number))


def insist(ask: Ask[Result], done: Callable[[Result], None]) -> None:
    """Asks again for as long as the connection is lost over it. For what may be done twice; a
    question waits while there is no connection, so this is no busy loop."""

    def answered(result: Result) -> None:
        if isinstance(result, CoordinationError) and result.trouble is Trouble.connection_loss:
            ask(answered)
        else:
            done(result)

    ask(answered)


class Queue:
    """Runs jobs one at a time, in order; a job ends when it calls what it was given. A job never
    begins inside the call that adds it, so answers always come later."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[Job] = deque()
        self._is_running = False

    def add(self, job: Job) -> None:
        self._waiting.append(job)
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._waiting.popleft()(self._ended)

    def _ended(self) -> None:
        self._is_running = bool(self._waiting)
        if self._is_running:
            self._loop.call_soon(self._run)


def refusal(error: CoordinationError) -> KafkaError:
    """What a client is told when the coordinator did not do it."""
    if (error.trouble, error.path) == (Trouble.bad_version, paths.CONTROLLER_EPOCH):
        return KafkaError(ErrorCode.not_controller, "another broker is the controller by now")
    match error.trouble:
        case Trouble.storage:
            code = ErrorCode.kafka_storage_error
        case Trouble.connection_loss | Trouble.session_expired:
            code = ErrorCode.request_timed_out
        case _:
            code = ErrorCode.unknown_server_error
    return KafkaError(code, f"the coordinator did not confirm it: {error}")
