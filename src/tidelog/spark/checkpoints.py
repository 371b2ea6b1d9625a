"""What the checkpoints of streaming queries say: how far each has read the topics of its sources.

Spark keeps a folder for each query, with a file for each planned batch (`offsets/N`: a version, a
line about the query, a line for each source) and one for each that is done (`commits/N`). A flow of
a pipeline that is begun anew gets another folder beside the one it had, with the next number.
"""

from pathlib import Path

from tidelog.base.ids import TopicPartition
from tidelog.spark.offsets import read_if_ours


def read_positions(storage: Path) -> dict[str, dict[TopicPartition, int]]:
    """By the path of a query's checkpoint below `storage`: the offsets behind the last records of
    the batch that it finished last. Queries that read no topic are left out."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for offsets in sorted(storage.rglob("offsets")):
        if _is_former(offsets.parent):
            continue
        done = _latest(offsets.parent / "commits")
        positions = {} if done is None else _positions(offsets / str(done))
        if positions:
            found[str(offsets.parent.relative_to(storage))] = positions
    return found


def _is_former(checkpoint: Path) -> bool:
    latest = _latest(checkpoint.parent)
    return latest is not None and checkpoint.name.isdecimal() and int(checkpoint.name) < latest


def _latest(folder: Path) -> int | None:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _positions(file: Path) -> dict[TopicPartition, int]:
    positions: dict[TopicPartition, int] = {}
    for line in file.read_text(encoding="utf-8").splitlines()[2:]:
        positions.update(read_if_ours(line))
    return positions
