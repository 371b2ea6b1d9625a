"""What is in a file of a log, as lines of text: `dump` yields them as it reads.

The file's name decides what is expected in it, as in Kafka's own tool. Lines that say what
is wrong are `Problem`s; whatever is good before the damage has been yielded by then. The
file is streamed, so memory does not grow with it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ports import Disk
from tidelog.log import checkpoints, dump_state
from tidelog.log.dump_batches import dump_log
from tidelog.log.dump_indexes import dump_offset_index, dump_time_index, dump_txn_index
from tidelog.log.dump_options import DumpOptions
from tidelog.log.dump_text import Problem, printable
from tidelog.log.files import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    REBUILT,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
)

__all__ = ["DumpOptions", "Problem", "dump"]

Dumper = Callable[[Disk, str, DumpOptions], Iterator[str]]

_BY_ENDING: Final[dict[str, Dumper]] = {
    LOG: dump_log,
    OFFSET_INDEX: dump_offset_index,
    TIME_INDEX: dump_time_index,
    TXN_INDEX: dump_txn_index,
    SNAPSHOT: dump_state.dump_snapshot,
}
_BY_NAME: Final[dict[str, Dumper]] = {
    checkpoints.RECOVERY_POINTS: dump_state.dump_offsets,
    checkpoints.HIGH_WATERMARKS: dump_state.dump_offsets,
    checkpoints.LOG_STARTS: dump_state.dump_offsets,
    checkpoints.LOG_STARTS_COPY: dump_state.dump_offsets,
    checkpoints.CLEANER_OFFSETS: dump_state.dump_offsets,
    checkpoints.LEADER_EPOCHS: dump_state.dump_epochs,
    checkpoints.LEADER_EPOCHS_UNSYNCED: dump_state.dump_epochs,
    checkpoints.PARTITION_METADATA: dump_state.dump_partition_metadata,
    checkpoints.META_PROPERTIES: dump_state.dump_meta_properties,
    checkpoints.CLEAN_SHUTDOWN: dump_state.dump_clean_shutdown,
}
_KNOWN: Final = ", ".join((*(f"*{ending}" for ending in _BY_ENDING), *_BY_NAME))
_MARKS: Final = (DELETED, CLEANED, SWAP, REBUILT, TEMPORARY)


def dump(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    yield f"Dumping {path}"
    dumper = _dumper(path)
    try:
        info = disk.stat(path)
        if info is None:
            yield Problem(f"{path}: there is no such file")
        elif info.is_folder:
            yield Problem(f"{path}: is a folder; name the files in it")
        elif dumper is None:
            yield Problem(f"{path}: is none of the files this knows: {_KNOWN}")
        else:
            yield from dumper(disk, path, options)
    except BadValue as error:
        yield Problem(printable(str(error).encode("utf-8", "surrogateescape")))
    except OSError as error:
        yield Problem(f"{path}: cannot be read: {error.strerror}")


def _dumper(path: str) -> Dumper | None:
    """A file that is on its way in or out is of the kind it was or will be."""
    name = path.rpartition("/")[2]
    for mark in _MARKS:
        name = name.removesuffix(mark)
    if name in _BY_NAME:
        return _BY_NAME[name]
    stem, dot, ending = name.rpartition(".")
    return _BY_ENDING.get(dot + ending) if stem else None
