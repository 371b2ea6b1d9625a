"""What processes and their children have used: CPU seconds of all threads, and memory.

Read from /proc, so Linux only.
"""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Fields of `stat`, counted from the state that follows the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    now_mb: float
    most_mb: float


def family(*pids: int) -> list[int]:
    """The processes and what descends from them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(path.name))
        if fields:
            parents[int(path.name)] = int(fields[_PARENT])
    found = list(pids)
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def cpu_seconds(*pids: int) -> float:
    ticks = 0
    for member in family(*pids):
        fields = _stat(member)
        if fields:
            ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS


def fine_cpu_seconds(*pids: int) -> float:
    """To the nanosecond, where ticks are too coarse. Threads that have ended are not in it."""
    return (
        sum(
            int(_read(int(task.name), "schedstat").partition(" ")[0] or 0)
            for member in family(*pids)
            for task in Path(f"/proc/{member}/task").glob("[0-9]*")
        )
        / 1e9
    )


def memory(*pids: int) -> Memory:
    """Resident, and the most it ever was; children's in the sum."""
    each = [memory_of(member) for member in family(*pids)]
    return Memory(now_mb=sum(one.now_mb for one in each), most_mb=sum(one.most_mb for one in each))


def memory_of(pid: int) -> Memory:
    """Of this process alone."""
    return Memory(now_mb=_status_mb(pid, "VmRSS"), most_mb=_status_mb(pid, "VmHWM"))


def share_mb(pid: int) -> float:
    """What is resident of this process alone. Pages that several have, such as those of their
    programs, are shared out among them, so that a sum counts them once."""
    return _field_mb(pid, "smaps_rollup", "Pss")


def _status_mb(pid: int, name: str) -> float:
    return _field_mb(pid, "status", name)


def _field_mb(pid: int, file: str, name: str) -> float:
    lines = _read(pid, file).splitlines()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(values.get(name, "0 kB").split()[0]) / 1024


def _stat(pid: int) -> list[str]:
    """Empty when it has ended meanwhile."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
