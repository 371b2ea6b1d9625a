"""Settings of Kafka's that are in the table and that nothing here acts on, with the reason.

Most are knobs of a machine that is built otherwise: a file written for Kafka is taken, and a
warning at the start names each that it sets to something else; while the broker runs they are
refused. Some are promises, on which somebody would rely, and a topic's settings are not told of at
a start: those are refused wherever they are set to anything but their default.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidelog.base.settings.kinds import Setting, Value

_LOOP: Final = "one event loop serves a broker, and there are no such threads"
_ONE_CLEANER: Final = "one child process compacts, one log at a time"
_BUFFERS: Final = "the child that compacts chooses its buffers itself"
_CHECKPOINTS: Final = "offsets are written down whenever they change what is durable"
_NO_QUOTAS: Final = "there are no quotas on clients"
_PEERS: Final = "each request between brokers has a time limit of its own"
_GROWING: Final = "segments take room as they grow, and none is reserved"
_LOADING: Final = "what a coordinator loads is read in slices of their own size"

NO_EFFECT: Final[Mapping[str, str]] = {
    "num.network.threads": _LOOP,
    "num.io.threads": _LOOP,
    "num.recovery.threads.per.data.dir": "each log dir has one thread, and long scans a child",
    "queued.max.requests": "no requests wait between threads; see queued.max.request.bytes",
    "connection.failed.authentication.delay.ms": "nobody logs in",
    "request.timeout.ms": _PEERS,
    "socket.connection.setup.timeout.ms": _PEERS,
    "socket.connection.setup.timeout.max.ms": _PEERS,
    "replica.socket.receive.buffer.bytes": "the system chooses the buffers between brokers",
    "quota.window.num": _NO_QUOTAS,
    "quota.window.size.seconds": _NO_QUOTAS,
    "controller.quota.window.num": _NO_QUOTAS,
    "controller.quota.window.size.seconds": _NO_QUOTAS,
    "replication.quota.window.num": "a throttle counts every byte as it is sent, without samples",
    "replication.quota.window.size.seconds": (
        "a throttle counts every byte as it is sent, without samples"
    ),
    "log.flush.offset.checkpoint.interval.ms": _CHECKPOINTS,
    "log.flush.start.offset.checkpoint.interval.ms": _CHECKPOINTS,
    "log.preallocate": _GROWING,
    "log.initial.task.delay.ms": "housekeeping begins after its first interval",
    "log.cleaner.threads": _ONE_CLEANER,
    "log.cleaner.io.max.bytes.per.second": _ONE_CLEANER,
    "log.cleaner.io.buffer.size": _BUFFERS,
    "log.cleaner.io.buffer.load.factor": _BUFFERS,
    "group.coordinator.append.linger.ms": "what comes in one turn of the loop is written together",
    "offsets.load.buffer.size": _LOADING,
    "transaction.state.log.load.buffer.size": _LOADING,
    "offsets.topic.compression.codec": "offsets are stored as they are",
    "zookeeper.connection.timeout.ms": "a broker waits for ZooKeeper as long as it takes",
    "zookeeper.max.in.flight.requests": "requests to ZooKeeper are sent together, unless too large",
}

_OPEN: Final = (
    "tidelog has no TLS, no login and no access control yet; leave it out, and run the broker "
    "where only friends can reach it"
)
_OPEN_ZOOKEEPER: Final = (
    "tidelog speaks to ZooKeeper without TLS and leaves its nodes open; leave it out, and run "
    "ZooKeeper where only brokers can reach it"
)

PROMISES: Final[Mapping[str, str]] = {
    "ssl.": _OPEN,
    "sasl.": _OPEN,
    "connections.max.reauth.ms": _OPEN,
    "security.inter.broker.protocol": _OPEN,
    "authorizer.class.name": _OPEN,
    "super.users": _OPEN,
    "allow.everyone.if.no.acl.found": _OPEN,
    "password.encoder.": _OPEN,
    "zookeeper.ssl.": _OPEN_ZOOKEEPER,
    "zookeeper.set.acl": _OPEN_ZOOKEEPER,
    "preallocate": _GROWING,
}
"""Names that end in a dot stand for all that begin so."""


def marked(rows: Iterable[Setting]) -> Iterator[Setting]:
    """The same rows; those above say that they have no effect, and cannot change. (A topic's have
    a mode of their own.)"""
    for row in rows:
        promise = _promise(row.name)
        why = promise or NO_EFFECT.get(row.name)
        if why is None:
            yield row
        else:
            yield replace(
                row,
                mode="read-only",
                doc=f"{row.doc} It has no effect: {why}.",
                no_effect=why,
                is_promise=promise is not None,
            )


def _promise(name: str) -> str | None:
    for start, why in PROMISES.items():
        if name == start or (start.endswith(".") and name.startswith(start)):
            return why
    return None


def ignored(table: Mapping[str, Setting], values: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Settings that somebody has chosen in vain, with the reason."""
    return [
        (name, setting.no_effect)
        for name, setting in table.items()
        if setting.no_effect and values[name] != setting.default
    ]
