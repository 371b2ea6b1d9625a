"""What must hold between broker settings, beyond the bound of each, as Kafka checks at start.

Each raises `BadValue` with the names and values that do not go together.
"""

from tidelog.base.errors import BadValue
from tidelog.base.settings.broker import listener_of
from tidelog.base.settings.listeners import (
    PLAINTEXT,
    Listener,
    read_listeners,
    read_protocol_map,
)
from tidelog.base.settings.typed import TypedValues

_DEDUPE_BYTES_MIN = 1 << 20

_AT_MOST = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
)
_LESS = (("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),)


def check_broker(settings: TypedValues) -> None:
    _check_pairs(settings)
    _check_identity(settings)
    _check_log_dirs(settings)
    _check_cleaner(settings)
    _check_connections(settings)
    _check_listeners(settings)


def _check_pairs(settings: TypedValues) -> None:
    for name, limit in _AT_MOST:
        if settings.whole(name) > settings.whole(limit):
            raise _refusal(settings, name, f"at most {limit}={settings[limit]}")
    for name, limit in _LESS:
        if settings.whole(name) >= settings.whole(limit):
            raise _refusal(settings, name, f"less than {limit}={settings[limit]}")


def _check_identity(settings: TypedValues) -> None:
    broker_id = settings.whole("broker.id")
    if not settings.flag("broker.id.generation.enable"):
        if broker_id < 0:
            raise _refusal(
                settings, "broker.id", "at least 0 while broker.id.generation.enable=false"
            )
    elif broker_id > settings.whole("reserved.broker.max.id"):
        raise _refusal(
            settings,
            "broker.id",
            f"at most reserved.broker.max.id={settings['reserved.broker.max.id']} "
            "while broker.id.generation.enable=true",
        )


def _check_log_dirs(settings: TypedValues) -> None:
    name = "log.dir" if settings["log.dirs"] is None else "log.dirs"
    dirs = [item.strip() for item in settings.text(name).split(",") if item.strip()]
    if not dirs:
        raise _refusal(settings, name, "at least one folder")
    if len(set(dirs)) < len(dirs):
        raise _refusal(settings, name, "folders that are each named once")


def _check_cleaner(settings: TypedValues) -> None:
    threads = settings.whole("log.cleaner.threads")
    name = "log.cleaner.dedupe.buffer.size"
    if threads and settings.whole(name) // threads <= _DEDUPE_BYTES_MIN:
        raise _refusal(
            settings, name, f"more than {_DEDUPE_BYTES_MIN} for each of {threads} cleaner threads"
        )


def _check_connections(settings: TypedValues) -> None:
    request_max = settings.whole("socket.request.max.bytes")
    if 0 < settings.whole("queued.max.request.bytes") < request_max:
        raise _refusal(
            settings,
            "queued.max.request.bytes",
            f"at least socket.request.max.bytes={request_max}, or -1 for no limit",
        )
    overrides = settings.text("max.connections.per.ip.overrides")
    if settings.whole("max.connections.per.ip") == 0 and not overrides:
        raise _refusal(
            settings,
            "max.connections.per.ip",
            "at least 1 unless max.connections.per.ip.overrides names some addresses",
        )
    idle_ms = settings.whole("connections.max.idle.ms")
    delay = "connection.failed.authentication.delay.ms"
    if 0 <= idle_ms <= settings.whole(delay):
        raise _refusal(settings, delay, f"less than connections.max.idle.ms={idle_ms}")


def _check_listeners(settings: TypedValues) -> None:
    listeners = read_listeners(settings.text("listeners"))
    protocols = read_protocol_map(settings.text("listener.security.protocol.map"))
    names = [listener.name for listener in listeners]
    fixed = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(fixed)) < len(fixed):
        raise _refusal(settings, "listeners", "addresses that are each named once")
    for name in names:
        if name not in protocols:
            raise _refusal(
                settings, "listener.security.protocol.map", f"such that it has {name} of listeners"
            )
        if protocols[name] != PLAINTEXT:
            raise BadValue(
                f"listener.security.protocol.map: the listener {name} is {protocols[name]}, and "
                "tidelog has no TLS and no login yet; map it to PLAINTEXT, and run the broker "
                "where only friends can reach it"
            )
    for setting in settings:
        listener = listener_of(setting)
        if listener is not None and listener not in names:
            raise BadValue(f"{setting}: the listener must be one of {', '.join(names).lower()}")
    _check_advertised(settings, listeners)
    _check_inter_broker(settings, names)


def _check_advertised(settings: TypedValues, listeners: tuple[Listener, ...]) -> None:
    own = settings["advertised.listeners"]
    advertised = listeners if own is None else read_listeners(str(own))
    name = "listeners" if own is None else "advertised.listeners"
    names = [listener.name for listener in listeners]
    if any(listener.name not in names for listener in advertised):
        raise _refusal(settings, name, f"among the names in listeners: {', '.join(names)}")
    if any(listener.host == "0.0.0.0" for listener in advertised):
        raise _refusal(
            settings,
            name,
            "addresses that clients can reach, not 0.0.0.0: set advertised.listeners",
        )


def _check_inter_broker(settings: TypedValues, names: list[str]) -> None:
    """The listener that brokers use among themselves must be one that is advertised."""
    advertised = settings["advertised.listeners"]
    if advertised is not None:
        names = [listener.name for listener in read_listeners(str(advertised))]
    chosen = settings["inter.broker.listener.name"]
    if chosen is not None and str(chosen).upper() not in names:
        raise _refusal(
            settings, "inter.broker.listener.name", f"an advertised one: {', '.join(names)}"
        )
    if chosen is None and settings["security.inter.broker.protocol"] not in names:
        raise _refusal(
            settings,
            "security.inter.broker.protocol",
            f"the name of an advertised listener ({', '.join(names)}), "
            "or inter.broker.listener.name must name one",
        )


def _refusal(settings: TypedValues, name: str, words: str) -> BadValue:
    value = settings[name]
    shown = ",".join(value) if isinstance(value, tuple) else value
    return BadValue(f"{name}={shown}: must be {words}")
