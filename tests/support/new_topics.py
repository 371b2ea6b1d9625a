"""Topics for tests that share a broker process, made through confluent-kafka."""

import itertools
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic


class NewTopicMaker:
    """`new_topic(partitions, retention_ms=5)` makes a topic that no other test uses."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._numbers = itertools.count()

    def __call__(self, partitions: int = 1, **configs: Any) -> str:
        return self.again(f"spark-{next(self._numbers)}", partitions, **configs)

    def again(self, name: str, partitions: int = 1, **configs: Any) -> str:
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(60)
