"""The whole table of broker settings, and finding a row of it by name.

A name that is in neither table is refused with the most helpful sentence there is: why
tidelog has no such setting of Kafka's, that it belongs to the other table, or what it was
probably meant to be.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.settings.cleaner import CLEANER
from tidelog.base.settings.cluster import CLUSTER
from tidelog.base.settings.groups import GROUPS
from tidelog.base.settings.kinds import Setting, table
from tidelog.base.settings.network import NETWORK
from tidelog.base.settings.no_effect import marked
from tidelog.base.settings.refused import reason
from tidelog.base.settings.security import SASL_MECHANISMS, SECURITY
from tidelog.base.settings.storage import STORAGE
from tidelog.base.settings.topic import TOPIC
from tidelog.base.settings.transactions import TRANSACTIONS

BROKER: Final = table(
    *map(marked, (CLUSTER, NETWORK, STORAGE, CLEANER, GROUPS, TRANSACTIONS, SECURITY))
)

LISTENER_SCOPED: Final = frozenset(
    [setting.name for setting in SECURITY if setting.name.startswith(("ssl.", "sasl."))]
    + ["connections.max.reauth.ms", "max.connections", "max.connection.creation.rate"]
)
_PREFIXED: Final = re.compile(r"listener\.name\.(?P<listener>[a-z0-9_-]+)\.(?P<setting>.+)")
_MECHANISM: Final = re.compile(
    rf"({'|'.join(re.escape(name.lower()) for name in SASL_MECHANISMS)})"
    r"\.(?P<setting>sasl\.jaas\.config|connections\.max\.reauth\.ms)"
)


def listener_of(name: str) -> str | None:
    """The listener a prefixed setting is for, in capitals; None for one without prefix."""
    match = _PREFIXED.fullmatch(name)
    return None if match is None else match["listener"].upper()


def find_broker_setting(name: str) -> Setting:
    """The row of a broker setting, also of one with a listener's prefix."""
    if name in BROKER:
        return BROKER[name]
    match = _PREFIXED.fullmatch(name)
    if match is not None:
        inner = _MECHANISM.fullmatch(match["setting"])
        base = match["setting"] if inner is None else inner["setting"]
        if base in LISTENER_SCOPED:
            return replace(BROKER[base], name=name, default=None)
        raise BadValue(f"{name}: {base} cannot be set for one listener")
    if name in TOPIC:
        raise BadValue(f"{name} is a setting of topics{_broker_default(TOPIC[name])}")
    raise _unknown(name, "setting", BROKER)


def find_topic_setting(name: str) -> Setting:
    """The row of a topic setting."""
    if name in TOPIC:
        return TOPIC[name]
    for setting in TOPIC.values():
        if any(synonym.name == name for synonym in setting.synonyms):
            raise BadValue(f"{name} is a setting of brokers; of topics it is {setting.name}")
    if name in BROKER:
        raise BadValue(f"{name} is a setting of brokers, not of topics")
    raise _unknown(name, "topic setting", TOPIC)


def _broker_default(setting: Setting) -> str:
    if not setting.synonyms:
        return ", not of brokers"
    return f"; the broker's default for it is {setting.synonyms[0].name}"


def _unknown(name: str, what: str, names: Iterable[str]) -> BadValue:
    why = reason(name)
    if why is not None:
        return BadValue(f"{name} is not a {what} of tidelog: {why}")
    shown = name if len(name) <= 100 else f"{name[:100]}..."
    close = get_close_matches(name[:100], list(names), n=1, cutoff=0.75)
    hint = f"; did you mean {close[0]}?" if close else ""
    return BadValue(f"{shown or 'an empty name'} is not a {what}{hint}")
