"""A group whose members are processes, of one client, that come, go, crash, stop and are slow; and
what must be true of it afterwards, whatever happened (A5, V15).

What the members have read is what they printed, also those that were killed.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from clients.kafkajs import MODULES
from support.cluster_processes import wait_until
from support.group_journal import check_commits, given, journal, owned, partitions_of
from tidelog.world.real.mortal import mortal

SESSION_MS: Final = 3_000
CLIENTS: Final = ("confluent", "confluent-newer", "aiokafka", "kafka-python", "kafkajs")
TELLS_COMMITS: Final = ("confluent", "confluent-newer")
_SCRIPT: Final = Path(__file__).with_name("group_member.py")
_NODE_SCRIPT: Final = Path(__file__).parents[1] / "clients" / "kafkajs_member.js"
_COMMITTED: Final = "committed"
_LEAVE_SECONDS_MAX: Final = 90
_SECONDS_MAX: Final = 120


def command_of(client: str) -> list[str] | None:
    """How a member is started; None if its client is not installed here."""
    if client != "kafkajs":
        return [sys.executable, str(_SCRIPT), client]
    node = shutil.which("node")
    return [node, str(_NODE_SCRIPT)] if node and (MODULES / "kafkajs").is_dir() else None


class MemberProcess:
    def __init__(self, command: list[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as output, said.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(
                mortal(command, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "NODE_PATH": str(MODULES)},
            )

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Partition, first and last offset of what it has read."""
        for words in self._lines():
            if words[0] != _COMMITTED:
                partition, first, last = map(int, words)
                yield partition, first, last

    def commits(self) -> Iterator[tuple[int, int]]:
        """Partition and offset of what it was told to be committed, if its client says so."""
        for words in self._lines():
            if words[0] == _COMMITTED:
                yield int(words[1]), int(words[2])

    def _lines(self) -> Iterator[list[str]]:
        """One that was killed may have been at its last line."""
        for line in self._said.read_text(encoding="ascii").splitlines(keepends=True)[1:]:
            if line.endswith("\n"):
                yield line.split()

    def send(self, number: signal.Signals) -> None:
        """When it can tell signals apart: the first thing it says is that it can."""
        wait_until(lambda: self._said.stat().st_size > 0 or not self.runs, "a member is ready")
        assert self.runs, f"it ended: {self.errors}"
        self.process.send_signal(number)

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    @property
    def errors(self) -> str:
        return self._said.with_suffix(".err").read_text(encoding="utf-8", errors="replace")[-2000:]

    def leave(self) -> None:
        self.send(signal.SIGTERM)
        status = self.process.wait(_LEAVE_SECONDS_MAX)
        assert status == 0, f"it left with {status}: {self.errors}"

    def kill(self) -> None:
        if self.runs:
            self.process.kill()
            self.process.wait()


class Churn:
    """One group of members of one client."""

    def __init__(self, client: str, bootstrap: str, topic: str, folder: Path) -> None:
        command = command_of(client)
        assert command is not None, f"{client} is installed"
        self.client = client
        self.name = f"{client}-of-{topic}"
        self.topic = topic
        self._bootstrap = bootstrap
        self._folder = folder
        self._command = [*command, bootstrap, self.name, topic, str(SESSION_MS)]
        self._all: list[MemberProcess] = []
        self._paused: list[MemberProcess] = []
        self.members: list[MemberProcess] = []

    # -- what happens to it

    def join(self) -> None:
        made = MemberProcess(self._command, self._folder / f"{self.name}-{len(self._all)}.txt")
        self._all.append(made)
        self.members.append(made)

    def leave(self) -> None:
        self.members.pop(0).leave()

    def crash(self) -> None:
        self.members.pop(0).kill()

    def pause(self) -> None:
        """One of them stands still until `resume`, and is none of the members meanwhile."""
        self._paused.append(self.members.pop(0))
        self._paused[-1].send(signal.SIGSTOP)

    def resume(self) -> None:
        while self._paused:
            self.members.append(self._paused.pop())
            self.members[-1].send(signal.SIGCONT)

    def slow_down(self) -> None:
        self.members[-1].send(signal.SIGUSR2)

    def close(self) -> None:
        for member in self._all:
            member.kill()

    # -- what is true of it

    def description(self) -> ConsumerGroupDescription | None:
        """None while nobody can be asked. An admin client remembers for minutes who coordinated a
        group, so each time it is another one."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        (asked,) = admin.describe_consumer_groups([self.name], request_timeout=10).values()
        try:
            found: ConsumerGroupDescription = asked.result(60)
        except KafkaException:
            return None
        return found

    def state(self) -> str:
        """For whoever has waited in vain."""
        found = self.description()
        shown = "cannot be described" if found is None else f"is {found.state.name}"
        members = [] if found is None else found.members
        held = [
            (member.member_id, [place.partition for place in member.assignment.topic_partitions])
            for member in members
        ]
        running = [member.process.pid for member in self.members]
        return f"{self.name} {shown} with {held}, while {running} run"

    def is_settled(self, partitions: int) -> bool:
        """Whether its members, and nobody else, have all partitions."""
        assert all(member.runs for member in self.members), "those that ended were told to"
        found = self.description()
        if found is None or len(found.members) != len(self.members):
            return False
        held = [
            place.partition
            for member in found.members
            for place in member.assignment.topic_partitions
        ]
        return sorted(held) == list(range(partitions)) and found.state.name == "STABLE"

    def has_read(self, ends: dict[int, int]) -> bool:
        """Whether its members have printed every offset below these."""
        missing = {partition: set(range(end)) for partition, end in ends.items()}
        for member in self._all:
            for partition, first, last in member.spans():
                missing[partition] -= set(range(first, last + 1))
        return not any(missing.values())

    def check_journal(self, count: int, partitions: int) -> None:
        """`count` is how many partitions `__consumer_offsets` has, the other those of the topic."""
        records = journal(self._bootstrap, self.name, count)
        in_journal = check_commits(records, self.name)
        acknowledged = {
            (self.topic, *commit) for member in self._all for commit in member.commits()
        }
        assert acknowledged or self.client not in TELLS_COMMITS
        assert acknowledged <= in_journal, f"commits are lost: {acknowledged - in_journal}"
        assert {partition for _, partition, _ in in_journal} == set(range(partitions))
        is_newer = self.client == "confluent-newer"
        seen = owned(records, self.name) if is_newer else given(records, self.name, self.topic)
        settled = {shares for shares in seen if partitions_of(shares) == list(range(partitions))}
        assert len(settled) > 1, f"all partitions were shared more than once: {settled}"


def run_until(
    holds: Callable[[], bool], meanwhile: Callable[[], None], state: Callable[[], str]
) -> None:
    """Until it holds; what goes on meanwhile is done over and over."""
    deadline = time.monotonic() + _SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to that: {state()}"
        meanwhile()
