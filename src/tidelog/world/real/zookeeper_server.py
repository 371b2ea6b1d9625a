"""A ZooKeeper server as a process of this machine, out of the jars that PySpark brings along.

For local clusters and tests: `ZooKeeperServer` writes a `zoo.cfg`, starts Java, waits until it
serves, and stops it. Sessions are rounded up to ticks, so ticks are small here: a broker that
is gone is noticed soon. PySpark is only looked for, never imported.
"""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.world.real.java import find_java
from tidelog.world.real.mortal import mortal

HOST: Final = "127.0.0.1"
PORT: Final = 2181
_PORT_MAX: Final = 65_535
TICK_MS: Final = 250
_ENDING_SECONDS_MAX: Final = 5.0
_SETTINGS: Final = {
    "tickTime": str(TICK_MS),
    "minSessionTimeout": "500",
    "maxSessionTimeout": "60000",
    "initLimit": "40",
    "syncLimit": "20",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",
    "4lw.commands.whitelist": "ruok,srvr,stat,mntr,cons,isro,wchs",
}
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-buffer-*.jar",
    "netty-common-*.jar",
    "netty-handler-[0-9]*.jar",
    "netty-transport-[0-9]*.jar",
    "netty-transport-classes-epoll-*.jar",
    "netty-transport-native-unix-common-*.jar",
    "netty-codec-[0-9]*.jar",
    "netty-codec-base-*.jar",
    "netty-resolver-[0-9]*.jar",
)
"""What ZooKeeper needs of PySpark's 250 jars: Java looks into every one it is given."""
_JAVA_OPTIONS: Final = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_LOG_CONFIGURATION: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
# Whoever asks a server that is still starting makes it log a stack trace.
logger.asked.name = org.apache.zookeeper.server.ServerCnxn
logger.asked.level = off
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_ADVICE: Final = (
    "a single node, `tidelog server`, needs neither ZooKeeper nor Java; "
    "any ZooKeeper 3.5 or newer will do as well (zookeeper.connect)"
)


def find_own_java() -> str:
    """Or why there is none, and what to do without it."""
    try:
        return find_java("ZooKeeper")
    except BadValue as error:
        raise BadValue(f"{error}; {_ADVICE}") from None


def find_jars() -> list[Path]:
    """ZooKeeper's server and all it needs, as PySpark has it."""
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        jars = Path(folder, "jars")
        if any(jars.glob(_JARS[0])):
            return [jar for pattern in _JARS for jar in sorted(jars.glob(pattern))]
    raise BadValue(
        "there is no PySpark, whose jars have the ZooKeeper server: "
        f"`pip install 'tidelog[spark]'`; {_ADVICE}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a server is: its folder, its port, and for one of several which it is."""

    folder: Path
    port: int = PORT
    host: str = HOST
    settings: Mapping[str, str] = field(default_factory=dict)
    """More lines of `zoo.cfg`, or other values than the usual."""
    number: int | None = None
    """`myid`; an ensemble's members are among the settings, as `server.1` and so on."""


class ZooKeeperServer:
    """`config` is a `zoo.cfg` of somebody's own; without it one is written into the folder."""

    def __init__(self, place: Place, config: Path | None = None) -> None:
        self._place = place
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"{place.host}:{place.port}"
        if config is not None:
            host, port = read_address(config)
            self.address = f"{host}:{port}"
        self.output = place.folder / "zookeeper.log"

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; `wait_until_serving` waits."""
        assert self._process is None, "the server does not run yet"
        java, jars = find_own_java(), find_jars()
        self._refuse_a_taken_port()
        own = self._config
        lock = _lock(self._place.folder / "data" if own is None else read_data_folder(own))
        try:
            self._run(java, jars, lock)
        finally:
            os.close(lock)

    def _run(self, java: str, jars: Sequence[Path], lock: int) -> None:
        """The process inherits the lock, and has it for as long as it runs."""
        folder = self._place.folder
        folder.mkdir(parents=True, exist_ok=True)
        config = self._config or self._write_config()
        logging = folder / "log4j2.properties"
        logging.write_text(_LOG_CONFIGURATION, encoding="utf-8")
        path = os.pathsep.join(map(str, jars))
        options = [*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={logging.absolute()}"]
        command = [java, *options, "-cp", path, _MAIN, str(config)]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                mortal(command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(lock,),
            )

    def wait_until_serving(self, seconds_max: float = 30.0) -> None:
        deadline = time.monotonic() + seconds_max
        while not is_serving(self.address):
            if not self.is_running:
                raise BadValue(f"ZooKeeper did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise BadValue(
                    f"ZooKeeper does not serve on {self.address} after {seconds_max:.0f} s; "
                    f"see {self.output}"
                )
            time.sleep(0.02)

    def wait(self) -> int:
        """Until the process has ended, whoever ended it; its status."""
        assert self._process is not None, "the server was started"
        return self._process.wait()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server runs"
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Only now: who is interrupted while waiting must still be able to kill it.
        self._process = None

    def _refuse_a_taken_port(self) -> None:
        """Java would say so in a stack trace, and who waits for it would take the server that
        has the port for this one."""
        host, port = split_address(self.address)
        try:
            with socket.create_server((host, port)):
                return
        except OSError as error:
            raise BadValue(
                f"port {port} cannot be used: {error.strerror}; choose another port"
            ) from None

    def _write_config(self) -> Path:
        place = self._place
        data = place.folder / "data"
        if place.number is not None:
            (data / "myid").write_text(f"{place.number}\n", encoding="utf-8")
        settings = {
            **_SETTINGS,
            "clientPort": str(place.port),
            "clientPortAddress": place.host,
            "dataDir": str(data.absolute()),
            **place.settings,
        }
        config = place.folder / "zoo.cfg"
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        config.write_text("".join(lines), encoding="utf-8")
        return config

    def _last_words(self) -> str:
        lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
        return " ".join(lines[-3:]) or f"nothing in {self.output} says why"


def ensemble(folder: Path, ports: Sequence[tuple[int, int, int]]) -> list[ZooKeeperServer]:
    """Servers that know each other, for each its ports: for clients, followers, elections."""
    members = {
        f"server.{number}": f"{HOST}:{followers}:{elections}"
        for number, (_, followers, elections) in enumerate(ports, 1)
    }
    return [
        ZooKeeperServer(
            Place(folder=folder / str(number), port=port, number=number, settings=members)
        )
        for number, (port, _, _) in enumerate(ports, 1)
    ]


def ask(address: str, command: str, seconds_max: float = 2.0) -> str:
    """The answer to a four letter command; empty if there is none."""
    try:
        with socket.create_connection(split_address(address), seconds_max) as connection:
            connection.sendall(command.encode())
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
    except OSError:
        return ""
    return b"".join(parts).decode()


def is_serving(address: str) -> bool:
    """A member of an ensemble without a leader listens, and answers that it does not serve."""
    return "Mode:" in ask(address, "srvr")


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _lock(folder: Path) -> int:
    """A descriptor that keeps others out for as long as anybody has it: ZooKeeper itself would
    write among the files of another that runs, and what is in them would be no history any more.
    One that is just ending, because whoever started it was killed, is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + _ENDING_SECONDS_MAX
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            os.close(lock)
            raise BadValue(
                f"{folder} is in use by another ZooKeeper: stop it, or choose another folder"
            ) from None
        return lock


def read_data_folder(config: Path) -> Path:
    """Where a server with this `zoo.cfg` keeps its data."""
    folder = _read_config(config).get("dataDir")
    if not folder:
        raise BadValue(f"{config}: there is no dataDir; add it")
    return Path(folder)


def read_address(config: Path) -> tuple[str, int]:
    """Where clients reach a server with this `zoo.cfg`."""
    settings = _read_config(config)
    port = settings.get("clientPort", "")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise BadValue(f"{config}: clientPort={port}: must be a port; add it")
    return settings.get("clientPortAddress", HOST), int(port)


def _read_config(config: Path) -> dict[str, str]:
    """In Latin-1, as ZooKeeper reads it."""
    settings: dict[str, str] = {}
    for line in config.read_text(encoding="latin-1").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith("#"):
            settings[name.strip()] = value.strip()
    return settings
