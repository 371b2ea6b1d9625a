"""The broker settings of listeners, connections, request limits, fetches, quotas and metrics."""

from typing import Final

from tidelog.base.settings.kinds import (
    INT_MAX,
    LONG_MAX,
    Setting,
    at_least,
    between,
    matching,
    not_empty,
    one_of,
)
from tidelog.base.settings.listeners import (
    DEFAULT_PROTOCOL_MAP,
    LISTENERS,
    PROTOCOL_MAP,
    PROTOCOLS,
)

IP_OVERRIDES: Final = matching(
    r"(\s*[^,\s]+:[0-9]{1,9}\s*(,\s*[^,\s]+:[0-9]{1,9}\s*)*)?",
    "host:number separated by commas, such as 10.0.0.1:200,localhost:100",
)

_LISTENERS: Final = (
    Setting(
        name="listeners",
        kind="string",
        default="PLAINTEXT://:9092",
        bound=LISTENERS,
        doc=(
            "Where the broker listens, as NAME://host:port separated by commas. No host is "
            "every address, port 0 any free one."
        ),
    ),
    Setting(
        name="advertised.listeners",
        kind="string",
        default=None,
        bound=LISTENERS,
        doc="The addresses that clients are told to use. Unset, those of listeners.",
    ),
    Setting(
        name="listener.security.protocol.map",
        kind="string",
        default=DEFAULT_PROTOCOL_MAP,
        bound=PROTOCOL_MAP,
        doc=(
            "The security protocol of each listener, as NAME:PROTOCOL separated by commas. Those "
            "that are used must be PLAINTEXT."
        ),
    ),
    Setting(
        name="inter.broker.listener.name",
        kind="string",
        default=None,
        bound=not_empty(),
        doc=(
            "The listener that brokers use among themselves. Unset, "
            "security.inter.broker.protocol decides."
        ),
    ),
    Setting(
        name="security.inter.broker.protocol",
        kind="string",
        default="PLAINTEXT",
        bound=one_of(*PROTOCOLS),
        doc="The protocol that brokers use among themselves, where no listener is named for it.",
    ),
    Setting(
        name="socket.listen.backlog.size",
        kind="int",
        default=50,
        bound=at_least(1),
        doc="How many connections may wait to be accepted.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        kind="int",
        default=-1,
        bound=at_least(-1),
        doc=(
            "The send buffer of a client's socket; -1 leaves it to the system. Kafka's default is "
            "102400, with which bulk reads cost more."
        ),
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        kind="int",
        default=-1,
        bound=at_least(-1),
        doc=(
            "The receive buffer of a client's socket; -1 leaves it to the system. Kafka's default "
            "is 102400, with which bulk writes cost more."
        ),
    ),
    Setting(
        name="num.network.threads",
        kind="int",
        default=3,
        bound=at_least(1),
        doc="How many threads read requests and send answers.",
    ),
    Setting(
        name="num.io.threads",
        kind="int",
        default=8,
        bound=at_least(1),
        doc="How many threads handle requests.",
    ),
)

_LIMITS: Final = (
    Setting(
        name="socket.request.max.bytes",
        kind="int",
        default=100 << 20,
        bound=at_least(1),
        doc="The largest request that is read; a longer one closes its connection.",
    ),
    Setting(
        name="socket.request.other.max.bytes",
        kind="int",
        default=4 << 20,
        bound=at_least(1),
        doc=(
            "The largest request other than Produce. It is tidelog's own: small requests can "
            "name very many things."
        ),
    ),
    Setting(
        name="queued.max.requests",
        kind="int",
        default=500,
        bound=at_least(1),
        doc="How many requests may wait for an answer before connections are no longer read.",
    ),
    Setting(
        name="queued.max.request.bytes",
        kind="long",
        default=-1,
        doc=(
            "How many bytes of requests may wait before connections are no longer read; -1 is "
            "no limit."
        ),
    ),
    Setting(
        name="max.connections",
        kind="int",
        default=INT_MAX,
        bound=at_least(0),
        doc="How many connections the broker keeps; more are closed at once.",
        mode="cluster-wide",
    ),
    Setting(
        name="max.connections.per.ip",
        kind="int",
        default=INT_MAX,
        bound=at_least(0),
        doc="How many connections one address may keep.",
        mode="cluster-wide",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        kind="string",
        default="",
        bound=IP_OVERRIDES,
        doc="Other limits for some addresses or host names, as host:number separated by commas.",
        mode="cluster-wide",
    ),
    Setting(
        name="max.connection.creation.rate",
        kind="int",
        default=INT_MAX,
        bound=at_least(0),
        doc="How many connections are served anew in a second; more wait, or are closed.",
        mode="cluster-wide",
    ),
    Setting(
        name="connections.max.idle.ms",
        kind="long",
        default=600_000,
        doc="A connection that was silent for this long is closed; negative is never.",
    ),
    Setting(
        name="connection.failed.authentication.delay.ms",
        kind="int",
        default=100,
        bound=at_least(0),
        doc="How long a failed login is kept waiting before its connection is closed.",
    ),
    Setting(
        name="request.timeout.ms",
        kind="int",
        default=30_000,
        bound=at_least(1),
        doc="How long the broker waits for an answer from another broker.",
    ),
    Setting(
        name="socket.connection.setup.timeout.ms",
        kind="long",
        default=10_000,
        bound=at_least(1),
        doc="How long the first attempt to connect to another broker may take.",
    ),
    Setting(
        name="socket.connection.setup.timeout.max.ms",
        kind="long",
        default=30_000,
        bound=at_least(1),
        doc="How long later attempts to connect to another broker may take at most.",
    ),
)

_FETCHING: Final = (
    Setting(
        name="fetch.max.bytes",
        kind="int",
        default=55 << 20,
        bound=at_least(1024),
        doc="The most that one fetch is answered with, whatever it asked for.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        kind="int",
        default=1000,
        bound=at_least(0),
        doc="How many fetch sessions the broker remembers.",
    ),
    Setting(
        name="max.request.partition.size.limit",
        kind="int",
        default=2000,
        bound=at_least(1),
        doc="How many partitions one DescribeTopicPartitions answer may hold.",
    ),
)

_QUOTAS: Final = (
    Setting(
        name="quota.window.num",
        kind="int",
        default=11,
        bound=at_least(1),
        doc="How many samples a client's quota is measured over.",
    ),
    Setting(
        name="quota.window.size.seconds",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="How long a sample of a client's quota is.",
    ),
    Setting(
        name="replication.quota.window.num",
        kind="int",
        default=11,
        bound=at_least(1),
        doc="How many samples a replication throttle is measured over.",
    ),
    Setting(
        name="replication.quota.window.size.seconds",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="How long a sample of a replication throttle is.",
    ),
    Setting(
        name="controller.quota.window.num",
        kind="int",
        default=11,
        bound=at_least(1),
        doc="How many samples the quota on topic changes is measured over.",
    ),
    Setting(
        name="controller.quota.window.size.seconds",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="How long a sample of the quota on topic changes is.",
    ),
    Setting(
        name="leader.replication.throttled.rate",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="Bytes in a second that leaders send to throttled replicas.",
        mode="cluster-wide",
    ),
    Setting(
        name="follower.replication.throttled.rate",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="Bytes in a second that throttled followers fetch.",
        mode="cluster-wide",
    ),
)

_METRICS: Final = (
    Setting(
        name="metrics.port",
        kind="int",
        default=None,
        bound=between(0, 65535),
        doc=(
            "The port that metrics are served on in Prometheus form. It is tidelog's own; "
            "unset, none are served."
        ),
    ),
)

NETWORK: Final = (*_LISTENERS, *_LIMITS, *_FETCHING, *_QUOTAS, *_METRICS)
