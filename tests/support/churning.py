"""A group whose members are processes, of one client, that come, go, crash, stop and are slow; and
what must be true of it afterwards, whatever happened (A5, V15).

What the members have read is what they printed, also those that were killed. What the coordinator
has decided is what stands in `__consumer_offsets`: who had which partition in each generation, and
each commit.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from clients.kafkajs import MODULES
from support.cluster_processes import wait_until
from tidelog.coordinators import hash_of
from tidelog.groups import consumer_records
from tidelog.groups.consumer_member import Member
from tidelog.groups.consumer_protocol import read_assignment
from tidelog.groups.records import (
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)

OFFSETS: Final = "__consumer_offsets"
SESSION_MS: Final = 3_000
CLIENTS: Final = ("confluent", "confluent-newer", "aiokafka", "kafka-python", "kafkajs")
_SCRIPT: Final = Path(__file__).with_name("group_member.py")
_NODE_SCRIPT: Final = Path(__file__).parents[1] / "clients" / "kafkajs_member.js"
_COMMITS: Final = (0, 1)
_GENERATION: Final = 2
_CURRENT: Final = consumer_records.CURRENT
_LEAVE_SECONDS_MAX: Final = 30
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
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "NODE_PATH": str(MODULES)},
            )

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Partition, first and last offset of what it has read. One that was killed may have been
        at its last line."""
        for line in self._said.read_text(encoding="ascii").splitlines(keepends=True)[1:]:
            if line.endswith("\n"):
                partition, first, last = map(int, line.split())
                yield partition, first, last

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
            found: ConsumerGroupDescription = asked.result(15)
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

    def journal(self, count: int) -> list[tuple[bytes, bytes | None]]:
        """All records of its partition of `__consumer_offsets`, of which there are `count`."""
        place = TopicPartition(OFFSETS, hash_of(self.name) % count, 0)
        reader = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "journal", "log_level": 0}
        )
        try:
            _, end = reader.get_watermark_offsets(place, timeout=30)
            reader.assign([place])
            return list(_records(reader, end))
        finally:
            reader.close()

    def check_journal(self, count: int) -> None:
        records = self.journal(count)
        self._check_commits(records)
        if self.client == "confluent-newer":
            self._check_owners(records)
        else:
            self._check_generations(records)

    def _check_commits(self, records: list[tuple[bytes, bytes | None]]) -> None:
        committed: dict[int, int] = {}
        for key, value in records:
            if int.from_bytes(key[:2]) not in _COMMITS or value is None:
                continue
            place = read_offset_key(key)
            if place.group_id == self.name:
                offset, before = read_offset_value(value).offset, committed.get(place.partition, 0)
                assert offset >= before, f"{place}: from {before} back to {offset}"
                committed[place.partition] = offset
        assert committed, "commits are in the journal"

    def _check_generations(self, records: list[tuple[bytes, bytes | None]]) -> None:
        seen = set()
        for key, value in records:
            is_group = int.from_bytes(key[:2]) == _GENERATION and value is not None
            if not is_group or read_group_key(key) != self.name:
                continue
            assert value is not None
            group = read_group_value(value)
            given = [read_assignment(member.assignment) for member in group.members]
            held = [place for found in given for place in found.get(self.topic, ())]
            assert len(held) == len(set(held)), f"generation {group.generation}: {given}"
            seen.add(group.generation)
        assert len(seen) > 1, "generations are in the journal"

    def _check_owners(self, records: list[tuple[bytes, bytes | None]]) -> None:
        owned: dict[str, set[int]] = {}
        for key, value in records:
            if int.from_bytes(key[:2]) != _CURRENT:
                continue
            _, group_id, member_id = consumer_records.read_key(key)
            if group_id != self.name:
                continue
            owned[member_id] = set()
            if value is None:
                continue
            found = consumer_records.read_current(value, Member(member_id=member_id))
            held = {number for side in (found.held, found.revoking) for number in _numbers(side)}
            others = set().union(*owned.values())
            assert not held & others, f"{member_id} is given {held & others}, which others have"
            owned[member_id] = held
        assert len(owned) > 1, "members are in the journal"


def _numbers(held: Mapping[bytes, Mapping[int, int]]) -> Iterator[int]:
    for partitions in held.values():
        yield from partitions


def _records(reader: Consumer, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    deadline = time.monotonic() + _SECONDS_MAX
    at = 0
    while at < end:
        assert time.monotonic() < deadline, f"only read up to {at} of {end}"
        for message in reader.consume(1000, 1.0):
            if not message.error():
                at = message.offset() + 1
                yield message.key(), message.value()


def run_until(
    holds: Callable[[], bool], meanwhile: Callable[[], None], state: Callable[[], str]
) -> None:
    """Until it holds; what goes on meanwhile is done over and over."""
    deadline = time.monotonic() + _SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to that: {state()}"
        meanwhile()
