"""Rules of groups switched off, one by one (V15)."""

from collections.abc import Callable, Sequence

import pytest

from tidelog.base.errors import KafkaError
from tidelog.base.journal import Committed, Entry, Origin
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.journaled import Journaled
from tidelog.groups.requests import Identity


def answer_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(
        self: Journaled,
        entries: Sequence[Entry],
        replayed: Callable[[Origin], None],
        committed: Committed,
        producer: tuple[int, int] | None = None,
    ) -> None:
        try:
            origin = self.journal.append(entries, lambda _error: None, producer)
        except KafkaError as error:
            committed(error)
            return
        replayed(origin)
        committed(None)

    monkeypatch.setattr(Journaled, "apply", apply)


def take_commits_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_generation(self: ClassicGroup, who: Identity) -> ClassicMember:
        return self.check_member(who.member_id, who.instance_id)

    monkeypatch.setattr(ClassicGroup, "check_generation", check_generation)
