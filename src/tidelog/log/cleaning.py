"""Compaction of one partition's closed segments, as a child process does it (S6).

`clean` reads the log twice: first the dirty part, for the last offset of every key, then
all of it, to write `.cleaned` segments with what is left. It takes the names of files and
answers with names of files; the broker, which goes on appending meanwhile, puts them in
place. Its memory is the map's and a few buffers', however large the log is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from tidelog.base.errors import BadValue
from tidelog.base.ports import Disk
from tidelog.log.chunks import Source
from tidelog.log.cleaned_segment import CleanedSegment
from tidelog.log.decided import DecidedTransactions, read_aborted
from tidelog.log.files import LOG, OFFSET_INDEX, TIME_INDEX, file_name
from tidelog.log.filtering import FilterPass, Retention
from tidelog.log.key_map import MapPass
from tidelog.records.key_table import make_table
from tidelog.records.rules import new_output
from tidelog.records.stops import OFFSET_SPAN, RECORDS_KEPT, RECORDS_READ

OUTPUT_BYTES: Final = 1 << 20
VERDICTS: Final = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSegment:
    """A segment that may be rewritten. Its offsets end below `upto`."""

    base: int
    size: int
    index_bytes: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    folder: str
    segments: Sequence[ClosedSegment]
    first_dirty: int
    upper: int
    map_bytes: int
    load_factor: float
    secret: bytes
    max_segment_bytes: int
    max_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    active_producers: frozenset[int]
    raised_epochs: frozenset[tuple[int, int]]
    max_batch_bytes: int

    @classmethod
    def parse(cls, disk: Disk, argument: Mapping[str, Any]) -> Self:
        """Reads the argument; the sizes of the indexes are the disk's."""
        plain = {
            name: argument[name]
            for name in cls.__slots__
            if name not in ("segments", "secret", "active_producers", "raised_epochs")
        }
        secret = bytes.fromhex(argument["seed"])
        if len(secret) != 16:
            raise BadValue(f"seed: {len(secret)} bytes, the secret of the hash has 16")
        return cls(
            **plain,
            segments=_segments(disk, argument),
            secret=secret,
            active_producers=frozenset(argument["active_producers"]),
            raised_epochs=frozenset((id_, epoch) for id_, epoch in argument["raised_epochs"]),
        )


def _segments(disk: Disk, argument: Mapping[str, Any]) -> list[ClosedSegment]:
    listed = argument["segments"]
    bases = [int(segment["base"]) for segment in listed]
    ends = [*bases, int(argument["upper"])][1:]
    return [
        ClosedSegment(
            base=base,
            size=segment["size"],
            index_bytes=_index_bytes(disk, argument["folder"], base),
            upto=upto,
        )
        for base, upto, segment in zip(bases, ends, listed, strict=True)
    ]


def _index_bytes(disk: Disk, folder: str, base: int) -> int:
    found = [disk.stat(f"{folder}/{file_name(base, kind)}") for kind in (OFFSET_INDEX, TIME_INDEX)]
    return max((info.size for info in found if info is not None), default=0)


def clean(disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """Cleans as much as the map has room for. A damaged batch raises `BadValue` and leaves
    nothing behind."""
    request = CleanRequest.parse(disk, argument)
    mapping = _map_keys(disk, request)
    groups = group_segments(
        [segment for segment in request.segments if segment.base < mapping.end],
        request.max_segment_bytes,
        request.max_index_bytes,
    )
    filtering = _filter_pass(disk, request, mapping)
    cleaned = _write_groups(disk, request, groups, filtering)
    rewritten = [segment for group in groups for segment in group]
    return {
        "groups": [
            {"base": target.base, "size": target.size, "replaces": [s.base for s in group]}
            for target, group in zip(cleaned, groups, strict=True)
        ],
        "end": mapping.end,
        "stats": {
            "records_mapped": mapping.stop[RECORDS_READ],
            "keys": mapping.keys,
            "records_read": filtering.stop[RECORDS_READ],
            "records_kept": filtering.stop[RECORDS_KEPT],
            "bytes_read": sum(segment.size for segment in rewritten),
            "bytes_written": sum(target.size for target in cleaned),
        },
    }


def group_segments(
    segments: Sequence[ClosedSegment], max_segment_bytes: int, max_index_bytes: int
) -> list[list[ClosedSegment]]:
    """Neighbours that make one segment together, so that segments do not get ever smaller."""
    groups: list[list[ClosedSegment]] = []
    for segment in segments:
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and sum(s.size for s in group) + segment.size <= max_segment_bytes
            and sum(s.index_bytes for s in group) + segment.index_bytes <= max_index_bytes
            and segment.upto - 1 - group[0].base <= OFFSET_SPAN
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def _open(disk: Disk, folder: str, segment: ClosedSegment) -> Source:
    path = f"{folder}/{file_name(segment.base, LOG)}"
    return Source(path=path, file=disk.open(path, "read"), size=segment.size)


def _transactions(disk: Disk, request: CleanRequest) -> DecidedTransactions:
    first = request.segments[0].base if request.segments else 0
    return DecidedTransactions(read_aborted(disk, request.folder, first))


def _map_keys(disk: Disk, request: CleanRequest) -> MapPass:
    dirty = (request.first_dirty, request.upper)
    table = make_table(request.map_bytes, request.load_factor, dirty, request.secret)
    mapping = MapPass(
        table,
        _transactions(disk, request),
        request.first_dirty,
        request.upper,
        request.max_batch_bytes,
    )
    for segment in request.segments:
        is_dirty = segment.upto > request.first_dirty and segment.base < request.upper
        if is_dirty and not mapping.take(_open(disk, request.folder, segment), segment.base):
            break
    return mapping


def _filter_pass(disk: Disk, request: CleanRequest, mapping: MapPass) -> FilterPass:
    retention = Retention(
        end=mapping.end,
        now_ms=request.now_ms,
        delete_retention_ms=request.delete_retention_ms,
        active_producers=request.active_producers,
        raised_epochs=request.raised_epochs,
        max_batch_bytes=request.max_batch_bytes,
    )
    return FilterPass(retention, mapping.table, mapping.window, _transactions(disk, request))


def _write_groups(
    disk: Disk,
    request: CleanRequest,
    groups: Sequence[Sequence[ClosedSegment]],
    filtering: FilterPass,
) -> list[CleanedSegment]:
    output = new_output(OUTPUT_BYTES, VERDICTS)
    limits = (request.index_interval_bytes, request.max_index_bytes)
    cleaned: list[CleanedSegment] = []
    try:
        for group in groups:
            target = CleanedSegment(disk, request.folder, group[0].base, output, limits)
            cleaned.append(target)
            last_with_data = max((s.base for s in group if s.size), default=-1)
            for segment in group:
                source = _open(disk, request.folder, segment)
                filtering.take(source, segment.base, target, segment.base == last_with_data)
            target.finish()
            output = target.output
    except Exception:
        for target in cleaned:
            target.discard()
        raise
    return cleaned
