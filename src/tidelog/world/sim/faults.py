"""What goes wrong on the simulated disk, and when.

A `Fault` fails operations that match it with an errno; a crash plan ends the process at the
n-th operation. `Faults.judge` is asked before an operation takes effect and answers with a
`Verdict`: whether the operation lands, wholly or in part, and what is raised afterwards.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import strerror
from typing import Literal

When = Literal["before", "middle", "after"]

CHANGES = frozenset(
    ("create", "pwrite", "truncate", "sync", "rename", "remove", "make_folder", "sync_folder")
)
"""Operations that change what the disk holds or what of it is durable. Only these are
numbered: a crash before a read leaves the disk as one before the next change does."""

READS = frozenset(("open", "pread", "size", "list", "stat", "usage", "lock", "resident"))


def os_error(number: int, path: str) -> OSError:
    return OSError(number, strerror(number), path)


class Crashed(BaseException):
    """The simulated process ends here. Not an `Exception`: no handler may go on after it."""


@dataclass(slots=True, kw_only=True)
class Fault:
    error_number: int
    operations: frozenset[str]
    path: str
    skip: int
    times: int | None
    part: float

    def strikes(self, operation: str, path: str) -> bool:
        if operation not in self.operations or not fnmatchcase(path, self.path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`part` of a write lands; any other operation lands wholly or not at all."""

    part: float
    error: BaseException | None


_FINE = Verdict(part=1.0, error=None)


class Faults:
    def __init__(self) -> None:
        self.list: list[Fault] = []
        self.halted = False
        self._countdown: int | None = None
        self._when: When = "before"

    @property
    def armed(self) -> bool:
        return self.halted or self._countdown is not None or bool(self.list)

    def plan_crash(self, number: int | None, when: When) -> None:
        self._countdown = number
        self._when = when

    def revive(self) -> None:
        """A new process runs; a medium that fails goes on failing."""
        self.halted = False
        self._countdown = None

    def judge(self, operation: str, path: str) -> Verdict:
        if self.halted:
            return Verdict(part=0.0, error=Crashed(f"{operation} {path} after the crash"))
        if self._countdown is not None and operation in CHANGES:
            self._countdown -= 1
            if self._countdown < 0:
                return self._crash(operation, path)
        for fault in self.list:
            if fault.strikes(operation, path):
                return Verdict(part=fault.part, error=os_error(fault.error_number, path))
        return _FINE

    def _crash(self, operation: str, path: str) -> Verdict:
        self._countdown = None
        self.halted = True
        part = {"before": 0.0, "middle": 0.5, "after": 1.0}[self._when]
        return Verdict(part=part, error=Crashed(f"{self._when} {operation} {path}"))
