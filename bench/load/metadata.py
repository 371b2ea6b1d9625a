"""Who leads what in a cluster: a Metadata request of version 12, and its answer read by hand."""

from dataclasses import dataclass

from bench.load.fields import NO_TAGS, Reader, array, compact

METADATA, METADATA_VERSION = 3, 12
_NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition: who leads it, -1 for nobody, and who is in sync."""

    number: int
    leader: int
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    addresses: dict[int, tuple[str, int]]
    controller: int
    places: list[Place]

    def led_by(self, broker: int) -> list[int]:
        return [place.number for place in self.places if place.leader == broker]


def metadata_body(topic: str | None) -> bytes:
    """About one topic, which is not created by asking, or about the brokers alone."""
    topics = [] if topic is None else [_NO_TOPIC_ID + compact(topic) + NO_TAGS]
    return array(topics) + b"\0" + b"\0" + NO_TAGS


def read_metadata(answer: Reader) -> Metadata:
    answer.int32()
    addresses = dict(_read_broker(answer) for _ in range(answer.count()))
    answer.compact()
    controller = answer.int32()
    places: list[Place] = []
    for _ in range(answer.count()):
        answer.int16(), answer.compact(), answer.take(16 + 1)
        places += [_read_place(answer) for _ in range(answer.count())]
        answer.int32()
        answer.skip_tags()
    return Metadata(addresses=addresses, controller=controller, places=places)


def _read_broker(answer: Reader) -> tuple[int, tuple[str, int]]:
    number, host, port = answer.int32(), answer.compact().decode(), answer.int32()
    answer.compact()
    answer.skip_tags()
    return number, (host, port)


def _read_place(answer: Reader) -> Place:
    _, number, leader, _ = answer.int16(), answer.int32(), answer.int32(), answer.int32()
    _, in_sync, _ = (_numbers(answer) for _ in range(3))
    answer.skip_tags()
    return Place(number=number, leader=leader, in_sync=in_sync)


def _numbers(answer: Reader) -> tuple[int, ...]:
    return tuple(answer.int32() for _ in range(answer.count()))
