"""How many offset commits a broker takes for each second of one core.

Ten groups of one member each commit in turns over ten connections, as fast as the broker answers.
The requests were encoded beforehand; each is for one partition, or for ten. The members have
joined for real, and are given so much time that they need no heartbeats.
"""

from statistics import median

from bench.groups.crowd import Crowd
from bench.groups.members import ClassicMember
from bench.groups.place import Place
from bench.load.contest import Row, row, tell
from bench.load.fields import NO_TAGS, NULL, array, compact, int32, int64, varint
from bench.load.frames import Frame, Topic, request
from bench.load.generator import Load, Stream

GROUPS, PARTITIONS = 10, 10
WANTED = 5000
_OFFSET_COMMIT, _VERSION = 8, 9
_JOINING_SECONDS_MAX = 30
_COMMITTED_PARTITION = 4 + 2 + len(NO_TAGS)


def commit(member: ClassicMember, topic: Topic, partitions: int) -> Frame:
    items = [
        int32(number) + int64(1000) + int32(0) + compact("") + NO_TAGS
        for number in range(partitions)
    ]
    body = compact(member.group_id) + int32(member.generation) + compact(member.member_id) + NULL
    body += array([compact(topic.name) + array(items) + NO_TAGS]) + NO_TAGS
    header, throttle, topics = 4 + len(NO_TAGS), 4, 1
    first = header + throttle + topics + len(compact(topic.name)) + len(varint(partitions + 1))
    return Frame(
        data=request(_OFFSET_COMMIT, _VERSION, body),
        error_at=first + 4,
        error_stride=_COMMITTED_PARTITION,
        error_count=partitions,
    )


def commits(place: Place) -> list[Row]:
    tell("offset commits")
    topic = place.side.new_topic(PARTITIONS)
    crowd = Crowd(place.side.broker.address)
    try:
        members = [
            ClassicMember(crowd, f"committing-{number}", topic, PARTITIONS)
            for number in range(GROUPS)
        ]
        for member in members:
            member.join()
        crowd.run_until(lambda: all(m.step >= 0 for m in members), _JOINING_SECONDS_MAX)
        return [
            *_measured(place, [commit(one, topic, 1) for one in members], "one partition"),
            *_measured(
                place, [commit(one, topic, PARTITIONS) for one in members], "ten partitions"
            ),
        ]
    finally:
        crowd.close()


def _measured(place: Place, frames: list[Frame], what: str) -> list[Row]:
    stream = Stream(name="commits", frames=frames, connections=GROUPS, in_flight=1)
    loads: list[Load] = [
        place.side.run(stream, seconds=place.effort.seconds)[0] for _ in range(place.effort.rounds)
    ]
    if any(load.errors for load in loads):
        raise RuntimeError(f"commits were refused: error {loads[0].first_error}")
    name = f"offset commits of {what}"
    wanted = f">= {WANTED}" if "one" in what else ""
    rate = median(load.rate for load in loads)
    return [
        row(
            f"{name}, for each second of one core",
            median(1e6 / load.cpu_us for load in loads),
            f"({rate:,.0f} a second by the clock, p99 "
            f"{median(load.p99_us for load in loads) / 1000:.1f} ms)",
            wanted,
        )
    ]
