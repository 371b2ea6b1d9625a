"""Tidying a log's folder before it is opened: what an operation that a crash cut short left.

A cleaned segment takes the place of the ones it was made from in three steps, and the name
of its `.log` file tells how far it got:

    .cleaned    being written, or not yet decided      -> removed, the old segments stay
    .swap       complete; the old segments may be gone -> takes their place now
    (none)      done

Its last batch ends where the last of the old segments ended, even if it had to be kept as an
empty one: so the range it replaces can be read from the file itself. `.deleted` files and
temporary ones are removed. An index without its log is worth nothing and goes too.
"""

from tidelog.base.ports import Disk
from tidelog.log.files import (
    CLEANED,
    DELETED,
    LOG,
    REBUILT,
    SEGMENT_KINDS,
    SWAP,
    TEMPORARY,
    TXN_INDEX,
    base_offset_of,
    file_name,
)
from tidelog.log.scan import batches


def settle(disk: Disk, folder: str) -> None:
    names = disk.list(folder)
    uncommitted = [
        base
        for name in names
        for kind in SEGMENT_KINDS
        if (base := base_offset_of(name, kind + CLEANED)) is not None
    ]
    first_uncommitted = min(uncommitted, default=None)
    swaps = [base for name in names if (base := base_offset_of(name, LOG + SWAP)) is not None]
    undecided = [b for b in swaps if first_uncommitted is not None and b >= first_uncommitted]
    for base in undecided:
        disk.remove(f"{folder}/{file_name(base, LOG + SWAP)}")
    if undecided:
        # Without the `.cleaned` file beside it, it would be taken for complete.
        disk.sync_folder(folder)
    for name in names:
        if name.endswith((DELETED, CLEANED, TEMPORARY, REBUILT)):
            disk.remove(f"{folder}/{name}")
    for base in swaps:
        if base not in undecided:
            _complete(disk, folder, base)
    for name in disk.list(folder):
        if name.endswith(SWAP):
            disk.remove(f"{folder}/{name}")
    if any(name.endswith((SWAP, CLEANED)) for name in names):
        disk.sync_folder(folder)


def _complete(disk: Disk, folder: str, base: int) -> None:
    """Puts a swapped segment in the place of those it was made from. Where none of them has its
    name any more, a transaction index of that name may be its own: it stays. If it is the old
    one after all, it names transactions too many, whose records are gone."""
    swap = f"{folder}/{file_name(base, LOG + SWAP)}"
    last_offset = base
    file = disk.open(swap, "read")
    for _, header, _ in batches(file, 0, file.size()):
        last_offset = header.last_offset
    file.close()
    names = disk.list(folder)
    own_index = file_name(base, TXN_INDEX) if file_name(base, LOG) not in names else ""
    for name in reversed(names):
        for kind in SEGMENT_KINDS:
            found = base_offset_of(name, kind)
            if found is not None and base <= found <= last_offset and name != own_index:
                disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)
    for kind in SEGMENT_KINDS[1:]:
        path = f"{folder}/{file_name(base, kind)}"
        if disk.stat(path + SWAP) is not None:
            disk.rename(path + SWAP, path)
    disk.sync_folder(folder)
    disk.rename(swap, f"{folder}/{file_name(base, LOG)}")
    disk.sync_folder(folder)
