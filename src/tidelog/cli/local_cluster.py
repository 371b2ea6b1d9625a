"""A cluster on one machine: a ZooKeeper process and broker processes, started and stopped in order.

Each step is told in a line when it is done. The brokers are `tidelog server`, each with its own
id, ports and folder; they end with whoever started them, however that ends.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.world.real.mortal import mortal
from tidelog.world.real.zookeeper_server import Place, ZooKeeperServer

SERVER: Final = (
    sys.executable,
    "-P",
    "-c",
    "from tidelog.cli.entry import main; main()",
    "server",
)
"""`tidelog server`, wherever the package is."""
_START_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 30.0
_LISTENS: Final = b"listening on"


class LocalBroker:
    def __init__(self, number: int, port: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.number = number
        self.address = f"127.0.0.1:{port}"
        self.output = folder / f"broker-{number}.log"
        self._settings = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(folder / f"broker-{number}"),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._before = 0

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the broker runs"
        return self._process.pid

    @property
    def status(self) -> int | None:
        """With which it has ended, if it has."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        command = mortal(SERVER, signal.SIGTERM)
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self.output.open("ab") as output:
            self._before = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while _LISTENS not in self._said():
            if self.status is not None:
                said = self._said().decode(errors="replace")
                raise BadValue(f"broker {self.number} did not start: {said.strip()[-500:]}")
            if time.monotonic() > deadline:
                raise BadValue(f"broker {self.number} does not serve yet: see {self.output}")
            time.sleep(0.02)

    def _said(self) -> bytes:
        """By this process: the file may hold what those of years have said."""
        with self.output.open("rb") as output:
            output.seek(self._before)
            return output.read()

    def end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process = self._process
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Only now: who is interrupted while waiting must still be able to kill it.
        self._process = None


class LocalCluster:
    def __init__(
        self,
        folder: Path,
        brokers: int,
        port: int,
        zookeeper_port: int,
        settings: Mapping[str, str],
    ) -> None:
        self._zookeeper = ZooKeeperServer(Place(folder=folder / "zookeeper", port=zookeeper_port))
        own = _defaults(brokers, settings)
        shared = {**own, "zookeeper.connect": self._zookeeper.address, **settings}
        self.brokers = [
            LocalBroker(number, port + number - 1, folder, shared)
            for number in range(1, brokers + 1)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def starting(self) -> Iterator[str]:
        """Starts everything; a line for each that serves."""
        began = time.monotonic()
        self._zookeeper.start()
        self._zookeeper.wait_until_serving()
        took = time.monotonic() - began
        yield (
            f"ZooKeeper serves on {self._zookeeper.address} after {took:.1f} s "
            f"(process {self._zookeeper.process_id})"
        )
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait_until_serving()
            yield (
                f"broker {broker.number} serves on {broker.address} "
                f"(process {broker.process_id}, log {broker.output})"
            )
        yield f"{len(self.brokers)} brokers after {time.monotonic() - began:.1f} s"

    @property
    def has_lost_all(self) -> bool:
        """Whether all brokers were started, and have ended by themselves."""
        return all(broker.status is not None for broker in self.brokers)

    def watching(self) -> Iterator[str]:
        """Goes on for as long as ZooKeeper serves; a line for each broker that ends. ZooKeeper
        outlasts them: somebody may have started one again by hand."""
        running = list(self.brokers)
        while True:
            for broker in list(running):
                if broker.status is not None:
                    running.remove(broker)
                    yield f"broker {broker.number} has ended with status {broker.status}"
                    if not running:
                        yield (
                            "no broker that was started here runs any more; "
                            f"ZooKeeper serves on {self._zookeeper.address} until Ctrl-C"
                        )
            if not self._zookeeper.is_running:
                raise BadValue(f"ZooKeeper has ended: see {self._zookeeper.output}")
            time.sleep(0.1)

    def stopping(self) -> Iterator[str]:
        """Brokers first, one after the other, so that each can have its partitions led elsewhere;
        the last one has nobody to hand them to."""
        for broker in self.brokers:
            broker.end(signal.SIGTERM)
            yield f"broker {broker.number} has stopped"
        self._zookeeper.stop()
        yield "ZooKeeper has stopped"

    def kill(self) -> None:
        """Ends whatever is left."""
        for broker in self.brokers:
            broker.end(signal.SIGKILL)
        self._zookeeper.kill()


def _defaults(brokers: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Of the topics that the brokers keep for themselves (O1). How many replicas of any topic must
    be in sync may be set, and then counts for the offsets of groups too, as in Kafka."""
    copies, in_sync = str(min(3, brokers)), str(min(2, brokers))
    of_offsets = {} if "min.insync.replicas" in settings else {"offsets.topic.min.isr": in_sync}
    return {
        "offsets.topic.replication.factor": copies,
        **of_offsets,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
    }
