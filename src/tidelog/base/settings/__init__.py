"""The settings of brokers and topics: Kafka's names, types, defaults and meanings, in one table.

`BROKER` and `TOPIC` are the table. `Settings` are the values of one broker, read from a
`server.properties`; `topic_settings` gives those of one topic on it. Whatever is not in the
table or out of bounds is refused by name, with what would be right.
"""

from tidelog.base.settings.broker import BROKER, find_broker_setting, find_topic_setting
from tidelog.base.settings.kinds import Setting, Value
from tidelog.base.settings.listeners import Listener, read_listeners, read_protocol_map
from tidelog.base.settings.topic import TOPIC
from tidelog.base.settings.topic_values import TopicSettings, topic_settings
from tidelog.base.settings.values import Entry, Settings, Source

__all__ = [
    "BROKER",
    "TOPIC",
    "Entry",
    "Listener",
    "Setting",
    "Settings",
    "Source",
    "TopicSettings",
    "Value",
    "find_broker_setting",
    "find_topic_setting",
    "read_listeners",
    "read_protocol_map",
    "topic_settings",
]
