"""`python -m bench.load HOST:PORT [scenario ...] [--pid N]`: what a running broker does under load.

The scenarios are `flood`, `latency`, `paced`, `produce` and `consume`; without a name all of them.
Each makes a topic and deletes it afterwards. `--pid` is the broker's, for its CPU and memory.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time_ns

from bench.load.frames import FETCH, PRODUCE, Frame, Topic, batch, fetch, produce
from bench.load.generator import Generator, Load, Stream
from bench.load.processes import memory
from bench.load.target import CLIENTS, Target


class Session:
    def __init__(self, options: argparse.Namespace, generator: Generator) -> None:
        host, _, port = options.address.rpartition(":")
        self.options = options
        self.target = Target(host, int(port), options.client)
        self._generator = generator

    def run(self, stream: Stream, seconds: float | None = None, warm_up: float = 0.5) -> Load:
        address = (self.target.host, self.target.port)
        span = seconds or self.options.seconds
        pids = [self.options.pid] if self.options.pid else []
        return self._generator.run(address, [stream], pids=pids, seconds=span, warm_up=warm_up)[0]

    @contextmanager
    def topic(self) -> Iterator[Topic]:
        topic = self.target.create_topic(f"load-{time_ns()}", self.options.partitions)
        yield topic
        self.target.delete_topic(topic)

    def produce(self, topic: Topic, batch_bytes: int) -> Frame:
        data = batch(self.options.record_bytes, batch_bytes)
        batches = [(number, data) for number in range(self.options.partitions)]
        return produce(topic, batches, self.target.versions[PRODUCE])


def flood(session: Session) -> Load:
    options = session.options
    with session.topic() as topic:
        frame = session.produce(topic, 0)
        return session.run(
            Stream(
                name="flood",
                frames=[frame],
                connections=options.connections,
                in_flight=options.in_flight,
            )
        )


def latency(session: Session) -> Load:
    with session.topic() as topic:
        return session.run(Stream(name="latency", frames=[session.produce(topic, 0)]))


def paced(session: Session) -> Load:
    with session.topic() as topic:
        frame = session.produce(topic, 0)
        rate = session.options.rate
        return session.run(Stream(name="paced", frames=[frame], rate=rate, in_flight=1000))


def bulk_produce(session: Session) -> Load:
    options = session.options
    with session.topic() as topic:
        frame = session.produce(topic, options.batch_bytes)
        return session.run(
            Stream(
                name="produce",
                frames=[frame],
                connections=options.connections,
                in_flight=options.in_flight,
                megabytes=options.megabytes,
            )
        )


def bulk_consume(session: Session) -> Load:
    options = session.options
    with session.topic() as topic:
        frame = session.produce(topic, options.batch_bytes)
        written = Stream(name="fill", frames=[frame], in_flight=5, megabytes=1000)
        session.run(written, seconds=60, warm_up=0)
        version = session.target.versions[FETCH]
        request = fetch(topic, options.partitions, options.fetch_bytes, version)
        return session.run(
            Stream(name="consume", frames=[request], connections=options.connections, follow=True)
        )


SCENARIOS: dict[str, Callable[[Session], Load]] = {
    "flood": flood,
    "latency": latency,
    "paced": paced,
    "produce": bulk_produce,
    "consume": bulk_consume,
}


def show(load: Load, pid: int) -> None:
    print(
        f"{load.name:8} {load.rate:9,.0f} requests/s {load.speed:8,.1f} MB/s   "
        f"p50 {load.p50_us:,.0f} p99 {load.p99_us:,.0f} p99.9 {load.p999_us:,.0f} "
        f"max {load.max_us:,.0f} us   generator {load.own_cpu_seconds / load.seconds:.0%} of a core"
    )
    if pid:
        used = memory(pid)
        print(
            f"         broker: {load.cpu_seconds / load.seconds:.0%} of a core, "
            f"{load.cpu_us:.1f} us a request, {load.cpu_per_gb:.2f} s/GB, "
            f"{used.now_mb:.0f} MB, at most {used.most_mb:.0f} MB"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--pid", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--megabytes", type=float, default=0, help="end bulk produce after so many")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--batch-bytes", type=int, default=1_000_000, help="of bulk batches")
    parser.add_argument("--fetch-bytes", type=int, default=1 << 20, help="of a partition at most")
    parser.add_argument("--partitions", type=int, default=1, help="in each request")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=5, help="on each connection")
    parser.add_argument("--rate", type=float, default=1000, help="requests a second, of paced")
    parser.add_argument("--client", choices=sorted(CLIENTS), default="java")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    generator = Generator.find()
    if generator is None:
        return 1
    try:
        session = Session(options, generator)
        for name in options.scenarios or SCENARIOS:
            show(SCENARIOS[name](session), options.pid)
    finally:
        generator.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
