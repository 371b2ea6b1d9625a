"""What an audit found: how far each partition goes, what became of the ledger, what is wrong."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    kind: str
    partition: int
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: partition {self.partition}, offset {self.offset}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One partition: what was compared of it."""

    partition: int
    start: int
    end: int
    brokers: tuple[str, ...]
    not_in_sync: tuple[str, ...]
    batches: int
    records: int
    size: int


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What became of what was acknowledged."""

    acknowledged: int = 0
    aged_out: int = 0
    """Below the log start now."""
    compacted: int = 0
    """Removed by compaction, or with a record behind it."""
    lost: int = 0
    changed: int = 0
    repeated: int = 0
    """Acknowledged twice with the same offset."""


@dataclass(slots=True, kw_only=True)
class Report:
    topic: str
    is_compacted: bool
    partitions: list[Audited] = field(default_factory=list)
    ledger: Ledger | None = None
    findings: list[Finding] = field(default_factory=list)
    """The first of each kind."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many there are of each kind."""

    @property
    def is_clean(self) -> bool:
        return not self.counts
