"""The work that brokers are compared by: single records, bulk both ways, many partitions.

Each function takes the sides that run and gives rows. Small requests go to topics that stay, so
that every round finds them the same; bulk goes to a fresh topic each time, which is deleted, so
that the disk does not fill and no round writes back what another wrote, and into memory that was
in use a moment ago. "As librdkafka" is one batch of 1 MB a request, its `batch.size`; "as Java" one
of 16 KB for each of six partitions.
"""

from bench.load.contest import Figure, Row, Side, in_turns, rows, tell
from bench.load.frames import FETCH, PRODUCE, Frame, Topic, batch, fetch, produce
from bench.load.generator import Load, Stream
from bench.load.used_memory import use_memory

SECONDS = 1.5
ROUNDS, FEW_ROUNDS = 5, 3
BULK_MEGABYTES = 600
JAVA_MEGABYTES = 300
BULK_SECONDS_MAX = 30
LIBRDKAFKA_BATCH = 1_000_000
JAVA_BATCH, JAVA_PARTITIONS = 16_384, 6
FETCH_BYTES = 1 << 20
CONSUMED_BATCH = 65_536
IN_FLIGHT = 5
WARM_SECONDS = 6.0
SETTLING_REQUESTS, SETTLING_SECONDS_MAX = 200, 60

REQUESTS = Figure(name="requests", unit="a second", of=lambda load: load.rate)
SPEED = Figure(name="speed", unit="MB/s", of=lambda load: load.speed)
CPU_OF_REQUESTS = Figure(name="CPU of 100,000 requests", unit="s", of=lambda load: load.cpu_us / 10)
CPU_OF_BYTES = Figure(name="CPU of a GB", unit="s", of=lambda load: load.cpu_per_gb)
P50 = Figure(name="p50", unit="µs", of=lambda load: load.p50_us)
P99 = Figure(name="p99", unit="µs", of=lambda load: load.p99_us)
P999 = Figure(name="p99.9", unit="µs", of=lambda load: load.p999_us)


def wanting(figure: Figure, target: str) -> Figure:
    return Figure(name=figure.name, unit=figure.unit, of=figure.of, target=target)


def one_record(side: Side, topic: Topic, partitions: int = 1, client: str = "java") -> Frame:
    data = batch(100)
    version = side.targets[client].versions[PRODUCE]
    return produce(topic, [(number, data) for number in range(partitions)], version)


def warm(sides: list[Side]) -> list[Row]:
    """A virtual machine compiles what it runs often: until then it is not what is meant."""
    tell("warming up")
    for side in sides:
        frame = one_record(side, side.new_topic())
        side.run(Stream(name="warm", frames=[frame], in_flight=50), seconds=WARM_SECONDS)
        side.run(Stream(name="warm", frames=[frame]), seconds=1)
        topic = filled(side)
        side.run(following(side, topic), seconds=1)
        side.delete(topic)
    return []


def requests_in_flight(sides: list[Side], client: str, rounds: int) -> list[Row]:
    tell(f"single records, five in flight, versions of {client}")
    frames = {side.name: one_record(side, side.new_topic(), client=client) for side in sides}

    def measure(side: Side) -> Load:
        stream = Stream(name="requests", frames=[frames[side.name]], in_flight=IN_FLIGHT)
        return side.run(stream, seconds=SECONDS)[0]

    loads = in_turns(sides, rounds, measure)
    figures = (wanting(REQUESTS, ">= 2.5"), wanting(CPU_OF_REQUESTS, "<= 0.4"))
    return rows(f"produce one 100 B record, 5 in flight, as {client}", loads, *figures, P99)


def one_at_a_time(sides: list[Side]) -> list[Row]:
    tell("single records, one at a time")
    frames = {side.name: one_record(side, side.new_topic()) for side in sides}

    def closed(side: Side) -> Load:
        return side.run(Stream(name="single", frames=[frames[side.name]]), seconds=SECONDS)[0]

    def paced(side: Side) -> Load:
        stream = Stream(name="paced", frames=[frames[side.name]], rate=1000, in_flight=1000)
        return side.run(stream, seconds=SECONDS)[0]

    figures = (wanting(P50, "<= 0.8"), wanting(P99, "<= 1.0"), P999)
    name = "produce one 100 B record"
    return [
        *rows(f"{name} at a time", in_turns(sides, ROUNDS, closed), *figures, CPU_OF_REQUESTS),
        *rows(f"{name}, 1,000 a second", in_turns(sides, FEW_ROUNDS, paced), *figures),
    ]


def bulk_produce(sides: list[Side], record_bytes: int, client: str, rounds: int) -> list[Row]:
    tell(f"bulk produce of {record_bytes} B records as {client}")
    is_java = client == "java"
    partitions = JAVA_PARTITIONS if is_java else 1
    megabytes = JAVA_MEGABYTES if is_java else BULK_MEGABYTES
    data = batch(record_bytes, JAVA_BATCH if is_java else LIBRDKAFKA_BATCH)

    def measure(side: Side) -> Load:
        with side.topic(partitions) as topic:
            batches = [(number, data) for number in range(partitions)]
            frame = produce(topic, batches, side.targets[client].versions[PRODUCE])
            use_memory(side.broker.folder, megabytes)
            return side.run(bulk(frame, megabytes), seconds=BULK_SECONDS_MAX)[0]

    cpu_target = "<= 0.5" if record_bytes == 100 else ""
    figures = (wanting(SPEED, ">= 1.2"), wanting(CPU_OF_BYTES, cpu_target))
    shape = "6 x 16 KB" if is_java else "1 MB"
    name = f"bulk produce {record_bytes:,} B, {shape} requests as {client}"
    return rows(name, in_turns(sides, rounds, measure), *figures)


def bulk(frame: Frame, megabytes: float = BULK_MEGABYTES) -> Stream:
    return Stream(name="bulk", frames=[frame], in_flight=IN_FLIGHT, megabytes=megabytes)


def filled(side: Side, megabytes: float = BULK_MEGABYTES) -> Topic:
    """A topic to consume: batches of 64 KB, of which many go into a fetch."""
    topic = side.new_topic()
    frame = produce(topic, [(0, batch(100, CONSUMED_BATCH))], side.target.versions[PRODUCE])
    side.run(bulk(frame, megabytes), seconds=BULK_SECONDS_MAX, warm_up=0)
    return topic


def bulk_consume(sides: list[Side]) -> list[Row]:
    tell("bulk consume")
    topics = {side.name: filled(side) for side in sides}

    def measure(side: Side) -> Load:
        return side.run(following(side, topics[side.name]), seconds=SECONDS)[0]

    loads = in_turns(sides, ROUNDS, measure)
    for side in sides:
        side.delete(topics[side.name])
    figures = (wanting(SPEED, ">= 1.0"), wanting(CPU_OF_BYTES, "<= 0.8"))
    return rows("bulk consume 100 B in fetches of 1 MB", loads, *figures)


def following(side: Side, topic: Topic, megabytes: float = 0) -> Stream:
    frame = fetch(topic, 1, FETCH_BYTES, side.target.versions[FETCH])
    return Stream(name="consume", frames=[frame], follow=True, megabytes=megabytes)


def settle(side: Side, frame: Frame) -> None:
    """The first writes to a partition make files and wait for the disk."""
    megabytes = SETTLING_REQUESTS * len(frame.data) / 1e6
    stream = Stream(name="settle", frames=[frame], megabytes=megabytes)
    side.run(stream, seconds=SETTLING_SECONDS_MAX, warm_up=0)


def many_partitions(sides: list[Side], partitions: int) -> list[Row]:
    """Produce requests for all of them, then fetches that find one record in each."""
    tell(f"requests of {partitions} partitions")
    topics = {side.name: side.new_topic(partitions) for side in sides}
    produced, fetched = {}, {}
    one_batch = len(batch(100))
    for side in sides:
        topic = topics[side.name]
        produced[side.name] = one_record(side, topic, partitions)
        fetched[side.name] = fetch(topic, partitions, one_batch, side.target.versions[FETCH])
        settle(side, produced[side.name])

    def measure(side: Side, frames: dict[str, Frame]) -> Load:
        stream = Stream(name="many", frames=[frames[side.name]], in_flight=IN_FLIGHT)
        return side.run(stream, seconds=SECONDS)[0]

    figures = (wanting(REQUESTS, ">= 2.5"), wanting(CPU_OF_REQUESTS, "<= 0.4"))
    produces = in_turns(sides, FEW_ROUNDS, lambda side: measure(side, produced), warm_rounds=0)
    fetches = in_turns(sides, FEW_ROUNDS, lambda side: measure(side, fetched), warm_rounds=0)
    for side in sides:
        side.delete(topics[side.name])
    return [
        *rows(f"produce requests of {partitions} partitions", produces, *figures),
        *rows(f"fetch requests of {partitions} partitions", fetches, REQUESTS, CPU_OF_REQUESTS),
    ]
