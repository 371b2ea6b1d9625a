"""Dead letters out of their topic, as Arrow batches with a column for all that their headers say.

There is no Python per record, and no Spark: commands use it as well. A record that somebody else
put into the topic has none of the headers, and nulls in their columns. Pipelines bury in
transactions: what was aborted is no dead letter.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.base.ids import is_legal_topic
from tidelog.client.client import Client
from tidelog.client.fetching import READ_COMMITTED, Range, RangeReader
from tidelog.records.columns import Wanted, decode_stream
from tidelog.spark import dead_letter_format as names

CHUNK_BYTES: Final = 16 * 1024 * 1024
_TEXTS: Final = {"origin_topic": names.TOPIC, "reason": names.REASON, "stage": names.STAGE}
_NUMBERS: Final = {
    "origin_partition": names.PARTITION,
    "origin_offset": names.OFFSET,
    "origin_timestamp": names.TIMESTAMP,
    "attempt": names.ATTEMPT,
}
_NUMBER: Final = "^[0-9]{1,18}$"

Letters = Generator[tuple[Range, pa.RecordBatch], None, None]
"""With where they are from."""


def dead_letter_topic(name: str) -> str:
    """Of a topic; or itself, if it is one."""
    return name if name.endswith(names.TOPIC_SUFFIX) else name + names.TOPIC_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which dead letters are meant; None where all are."""

    reason: str | None = None
    """Is part of the reason."""
    stage: str | None = None
    attempts_max: int | None = None

    def of(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        if self.reason is not None:
            found = pc.match_substring(letters.column("reason"), self.reason)
            letters = letters.filter(pc.fill_null(found, False))
        if self.stage is not None:
            same = pc.equal(letters.column("stage"), self.stage)
            letters = letters.filter(pc.fill_null(same, False))
        if self.attempts_max is not None:
            attempts = pc.fill_null(letters.column("attempt"), 1)
            letters = letters.filter(pc.less_equal(attempts, self.attempts_max))
        return letters


def read_letters(client: Client, ranges: Sequence[Range]) -> Letters:
    """In the order of partitions and offsets, none of them empty. Memory is that of one fetch."""
    with RangeReader(client, isolation_level=READ_COMMITTED) as reader:
        for wanted in ranges:
            # The fetch has checked the CRCs.
            choice = Wanted(first=wanted.start, last=wanted.end - 1)
            for chunk in reader.read(wanted):
                for records in decode_stream(chunk, choice, chunk_bytes=CHUNK_BYTES):
                    if records.num_rows:
                        yield wanted, with_origin(records)


def with_origin(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records as the decoder gives them, and what their headers say."""
    headers = _Headers(records.column("headers"))
    texts = {column: _text(headers.first(name)) for column, name in _TEXTS.items()}
    numbers = {column: _number(_text(headers.first(name))) for column, name in _NUMBERS.items()}
    texts["origin_topic"] = _legal(texts["origin_topic"])
    own = {name: records.column(name) for name in records.schema.names}
    return pa.RecordBatch.from_pydict({**own, **texts, **numbers})


class _Headers:
    """The headers of many records, one below the other."""

    def __init__(self, column: Any) -> None:
        self._rows = len(column)
        self._row = np.asarray(pc.list_parent_indices(column))
        self._key, self._value = column.flatten().flatten()

    def first(self, name: str) -> Any:
        """The first of this name, for each record; null where there is none."""
        places = np.flatnonzero(np.asarray(pc.equal(self._key, name)))
        rows, firsts = np.unique(self._row[places], return_index=True)
        found = np.full(self._rows, -1, np.int64)
        found[rows] = places[firsts]
        return self._value.take(pa.array(found, mask=found < 0))


def _text(column: Any) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        decoded = [None if cell is None else cell.decode("utf-8", "replace") for cell in cells]
        return pa.array(decoded, pa.string())


def _number(column: Any) -> Any:
    is_number = pc.match_substring_regex(column, _NUMBER)
    return pc.if_else(is_number, column, None).cast(pa.int64())


def _legal(column: Any) -> Any:
    """A name that no topic can have leads nowhere."""
    encoded = column.dictionary_encode()
    known = [name if is_legal_topic(name) else None for name in encoded.dictionary.to_pylist()]
    return pa.array(known, pa.string()).take(encoded.indices)
