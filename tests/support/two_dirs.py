"""A server with two log dirs, a partition of the topic `events` in each, and the loss of one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from support.servers import TidelogServer
from support.wire_client import wait_until


class TwoDirs(TidelogServer):
    def __init__(self, folder: Path) -> None:
        self.dirs = [folder / "first", folder / "second"]
        settings = {
            "log.dirs": ",".join(map(str, self.dirs)),
            "num.partitions": "2",
            "replica.high.watermark.checkpoint.interval.ms": "50",
        }
        super().__init__(folder, settings)

    def produce(self, partition: int, value: str) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        producer.produce("events", value, partition=partition)
        assert producer.flush(60) == 0

    def lose_dir_of(self, partition: int, what_it_says: str) -> None:
        """Takes away where a partition lies, and waits until the server has noticed."""
        (home,) = (one for one in self.dirs if (one / f"events-{partition}").exists())
        home.rename(home.with_name(f"{home.name}-gone"))
        producer = Producer({"bootstrap.servers": self.address})
        producer.produce("events", "may have nowhere to go", partition=partition)
        assert wait_until(lambda: what_it_says in self.output.read_text())
        producer.purge()


@contextmanager
def two_dirs(folder: Path) -> Iterator[TwoDirs]:
    """A record is in each partition."""
    server = TwoDirs(folder)
    server.start()
    try:
        for partition in (0, 1):
            server.produce(partition, "before")
        yield server
    finally:
        server.close()
