"""What idempotence costs a broker: the same batches with a producer's id and sequences, or without.

Both are written with acks=all, in turns, and the CPU that the broker uses for each is compared:
single records, and bulk in the requests of two clients. Every run is another producer's, and its
sequences are counted up by the generator.
"""

from dataclasses import dataclass

from bench.groups.place import Place
from bench.load.contest import Row, in_turns, rows, tell
from bench.load.frames import ACKS_ALL, PRODUCE, Topic, batch, produce
from bench.load.generator import Load, Stream
from bench.load.scenarios import (
    BULK_SECONDS_MAX,
    CPU_OF_BYTES,
    CPU_OF_REQUESTS,
    IN_FLIGHT,
    JAVA_BATCH,
    JAVA_PARTITIONS,
    LIBRDKAFKA_BATCH,
    wanting,
)

WHAT = "an idempotent producer against a plain one"
WANTED = "<= 1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    name: str
    is_idempotent: bool


BOTH = [
    Producer(name="idempotent", is_idempotent=True),
    Producer(name="plain", is_idempotent=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requests of a client."""

    client: str
    partitions: int
    batch_bytes: int


SINGLE = Shape(client="java", partitions=1, batch_bytes=0)
LIBRDKAFKA = Shape(client="librdkafka", partitions=1, batch_bytes=LIBRDKAFKA_BATCH)
JAVA = Shape(client="java", partitions=JAVA_PARTITIONS, batch_bytes=JAVA_BATCH)


def producing(place: Place) -> list[Row]:
    tell("idempotent and plain, one record")
    small = place.side.new_topic()

    def one(producer: Producer) -> Load:
        stream = written_by(place, producer, SINGLE, small)
        return checked(place.side.run(stream, seconds=place.effort.seconds)[0])

    loads = in_turns(BOTH, place.effort.rounds, one)
    return rows(f"{WHAT}, one 100 B record", loads, wanting(CPU_OF_REQUESTS, WANTED))


def bulk_producing(place: Place) -> list[Row]:
    return [
        *in_bulk(place, LIBRDKAFKA, f"{WHAT}, 1 MB requests"),
        *in_bulk(place, JAVA, f"{WHAT}, requests of 6 x 16 KB"),
    ]


def in_bulk(place: Place, shape: Shape, what: str) -> list[Row]:
    tell(what)

    megabytes = place.effort.megabytes / (2 if shape is JAVA else 1)

    def bulk(producer: Producer) -> Load:
        with place.side.topic(shape.partitions) as topic:
            stream = written_by(place, producer, shape, topic, megabytes)
            return checked(place.side.run(stream, seconds=BULK_SECONDS_MAX)[0])

    loads = in_turns(BOTH, place.effort.rounds, bulk)
    return rows(what, loads, wanting(CPU_OF_BYTES, WANTED))


def written_by(
    place: Place, producer: Producer, shape: Shape, topic: Topic, megabytes: float = 0
) -> Stream:
    target = place.side.targets[shape.client]
    producer_id = target.new_producer_id() if producer.is_idempotent else None
    data = batch(100, shape.batch_bytes, producer_id)
    batches = [(number, data) for number in range(shape.partitions)]
    frame = produce(topic, batches, target.versions[PRODUCE], ACKS_ALL)
    # A frame gets its next sequences when it is sent again: then it has been answered.
    return Stream(
        name=producer.name, frames=[frame] * IN_FLIGHT, in_flight=IN_FLIGHT, megabytes=megabytes
    )


def checked(load: Load) -> Load:
    if load.errors:
        raise RuntimeError(f"{load.name}: batches were refused: error {load.first_error}")
    return load
