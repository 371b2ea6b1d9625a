"""kafkajs, driven line by line: `kafkajs_client.js` beside this file reads a JSON command a line
and answers with a JSON line, so that a test is written in Python and Node starts once for it."""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clients.samples import Sample

MODULES: Final = Path(sys.prefix) / "node" / "node_modules"
SCRIPT: Final = Path(__file__).with_name("kafkajs_client.js")


class KafkajsError(Exception):
    """What kafkajs threw: `type` is the protocol's name of the error where it has one."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type = type_name


class Kafkajs:
    def __init__(self, node: str, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [node, str(SCRIPT), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
            start_new_session=True,
        )

    def admin(self, method: str, argument: Any = None) -> Any:
        """Calls a method of kafkajs's admin client."""
        return self._ask({"do": "admin", "method": method, "argument": argument})

    def send(
        self,
        topic: str,
        records: Sequence[Sample],
        *,
        producer: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Sends in one call; `options` are those of `send` (acks, compression by its name),
        `producer` those of the producer that is made for it."""
        messages = [_message(record) for record in records]
        record = {"topic": topic, "messages": messages, **(options or {})}
        return self._ask({"do": "send", "producer": producer or {}, "record": record})

    def join(self, name: str, topic: str, group: str, **options: Any) -> None:
        """Has a member of a group read a topic; it commits every record."""
        options = {
            "groupId": group,
            "sessionTimeout": 6000,
            "heartbeatInterval": 200,
            "maxWaitTimeInMs": 200,
            **options,
        }
        self._ask({"do": "join", "name": name, "topic": topic, "options": options})

    def look(self, name: str) -> tuple[list[bytes], list[int]]:
        """What a member has read, and the partitions it has."""
        found = self._ask({"do": "look", "name": name})
        return [base64.b64decode(value) for value in found["values"]], sorted(found["partitions"])

    def leave(self, name: str) -> None:
        self._ask({"do": "leave", "name": name})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the script ended with {self._process.wait(60)}"
        answer = json.loads(line)
        if "error" in answer:
            raise KafkajsError(answer["error"], answer["message"])
        return answer["result"]


def _message(record: Sample) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in record.headers:
        headers.setdefault(name, []).append(_text(value or b""))
    return {
        "key": None if record.key is None else _text(record.key),
        "value": None if record.value is None else _text(record.value),
        "headers": headers,
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
