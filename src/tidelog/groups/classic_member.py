"""A member of a classic group, and what it waits for."""

from collections.abc import Collection

from tidelog.groups.deadline import Deadline
from tidelog.groups.records import MemberValue
from tidelog.groups.requests import AnswerJoin, AnswerSync, Join

Protocols = tuple[tuple[str, bytes], ...]


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "heartbeat",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, instance_id: str | None, heartbeat: Deadline) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.heartbeat = heartbeat
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.session_timeout_ms = 0
        self.protocols: Protocols = ()
        self.assignment = b""
        self.is_new = False
        """Whether it has not been in a generation yet."""
        self.joining: AnswerJoin | None = None
        """Who waits for the next generation to begin."""
        self.syncing: AnswerSync | None = None
        """Who waits for the leader to say what is to be done."""

    def update(self, join: Join) -> None:
        self.protocols = unrepeated(join.protocols)
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms

    def load(self, value: MemberValue, protocol: str) -> None:
        self.client_id = value.client_id
        self.client_host = value.client_host
        self.rebalance_timeout_ms = value.rebalance_timeout_ms
        self.session_timeout_ms = value.session_timeout_ms
        self.protocols = ((protocol, value.subscription),)
        self.assignment = value.assignment

    def renamed(self, member_id: str, heartbeat: Deadline) -> "ClassicMember":
        """The same static member after a start; what waited for the old one is not taken over."""
        member = ClassicMember(member_id, self.instance_id, heartbeat)
        member.client_id = self.client_id
        member.client_host = self.client_host
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.session_timeout_ms
        member.protocols = self.protocols
        member.assignment = self.assignment
        return member

    @property
    def is_heard_of(self) -> bool:
        """Whether it waits for an answer and so sends no heartbeats. One that is new may have
        left without a word while it waits."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The dearest of those that everyone can do."""
        return next(name for name, _ in self.protocols if name in candidates)

    def kept(self, protocol: str, assignment: bytes) -> MemberValue:
        """As it is written to the journal."""
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def unrepeated(protocols: Protocols) -> Protocols:
    """Each name once, where it stands first."""
    found: dict[str, bytes] = {}
    for name, data in protocols:
        found.setdefault(name, data)
    return tuple(found.items())
