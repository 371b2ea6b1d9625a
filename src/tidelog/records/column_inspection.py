"""Looking into a batch of very many records, with compiled loops. Never imported by the broker.

What is wrong with a batch is told in the words of the reader in plain Python.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.base.ports import Buffer, Disk
from tidelog.records.column_decoder import decode
from tidelog.records.inspection import answer


def keys_missing_of_many(batch: Buffer, limit: int) -> int:
    return int(decode(batch, limit=limit, columns=("key",)).column("key").null_count)


def run(_disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's task."""
    return answer(argument, keys_missing_of_many)
