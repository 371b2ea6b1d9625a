"""How soon a stream has its first batch, in a session that is fresh and in one that is warm.

Spark starts a Python process for each step of a source in Python, so beside the connector runs a
source that does nothing: what is above that is ours. Both are also run by a plain program, which
does not call `use_this_python`: then these processes start later.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from bench.load.contest import Row, compared, in_turns, row, tell
from bench.spark.scenarios import CONNECTOR, OURS, Contender, Place
from bench.spark.side import (
    CONSTANT_SOURCE,
    Session,
    connector_session,
    our_session,
)

NOTHING = "a Python source that does nothing"
PLAINLY = ", plain"
_ROWS = 1000
_TOPIC = "few"

Seconds = dict[str, list[float]]


def first_batch(place: Place) -> list[Row]:
    fresh: Seconds = {}
    warm: Seconds = {}
    for number in range(place.effort.cold_rounds):
        with _sessions(place) as sessions:
            all_of_them = [_streamer(place, name, sessions[name]) for name in sessions]
            for one in all_of_them[:: 1 - 2 * (number % 2)]:
                fresh.setdefault(one.name, []).append(_seconds(one))
            for name, values in in_turns(all_of_them, place.effort.rounds, _seconds).items():
                warm.setdefault(name, []).extend(values)
    return [found for ours in (OURS, OURS + PLAINLY) for found in _rows(ours, fresh, warm)]


def _rows(ours: str, fresh: Seconds, warm: Seconds) -> list[Row]:
    """Against the connector, and against the source that does nothing: what is above it is ours."""
    found: list[Row] = []
    nothing = NOTHING + ours.removeprefix(OURS)
    for kind, values in (("fresh", fresh), ("warm", warm)):
        if ours not in values:
            continue
        what = f"first micro-batch in a {kind} session, {ours}"
        if CONNECTOR in values:
            both = {ours: values[ours], CONNECTOR: values[CONNECTOR]}
            found.append(compared(what, both, "s", "<= 1" if kind == "warm" else ""))
        if CONNECTOR in values and kind == "fresh":
            found.append(_later(what, values, ours, CONNECTOR, "<= 2"))
        found.append(_later(what, values, ours, nothing))
    return found


def _later(what: str, values: Seconds, ours: str, other: str, target: str = "") -> Row:
    later = median(one - two for one, two in zip(values[ours], values[other], strict=True))
    middles = f"{median(values[ours]):.2f} and {median(values[other]):.2f}"
    return row(f"{what}: later than {other}", later, f"s ({middles})", target)


@contextmanager
def _sessions(place: Place) -> Iterator[Mapping[str, Session]]:
    """New ones, one for each."""
    with ExitStack() as stack:
        made: dict[str, Session] = {}
        for suffix in ("", PLAINLY):
            for name, sources in ((OURS, ()), (NOTHING, (CONSTANT_SOURCE,))):
                folder = place.folder / f"session-{len(made)}"
                session = our_session(folder, is_plain=bool(suffix), sources=sources)
                made[name + suffix] = stack.enter_context(session)
        if place.home is not None:
            theirs = connector_session(place.home, place.folder / CONNECTOR)
            made[CONNECTOR] = stack.enter_context(theirs)
        yield made


def _streamer(place: Place, name: str, session: Session) -> Contender:
    source = _source(place, name)

    def run() -> tuple[int, float]:
        return session.ask("first_batch", source=source, checkpoint=place.new_folder())

    return Contender(name=name, run=run)


def _source(place: Place, name: str) -> dict[str, Any]:
    if name.startswith(NOTHING):
        return {"format": "constant", "options": {}}
    if _TOPIC not in place.filled:
        place.filled[_TOPIC] = place.topics.fill(_TOPIC, _ROWS, 100)
    return place.topics.source(CONNECTOR if name == CONNECTOR else OURS, _TOPIC)


def _seconds(one: Contender) -> float:
    _, seconds = one.run()
    tell(f"first micro-batch: {one.name} {seconds:.2f} s")
    return seconds
