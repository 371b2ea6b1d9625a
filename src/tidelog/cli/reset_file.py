"""Offsets to set, as the lines of CSV that Kafka's tool writes and reads: `orders,0,42`, or with
the group before it where there are several.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition

Resets = Mapping[str | None, Mapping[TopicPartition, int]]
"""By group; None for lines that do not name one."""
_NUMBER: Final = re.compile("[0-9]{1,19}")


def csv_lines(
    resets: Mapping[str, Mapping[TopicPartition, int]], *, with_groups: bool
) -> list[str]:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    for group, offsets in resets.items():
        for one, offset in offsets.items():
            row = (one.topic, one.partition, offset)
            writer.writerow((group, *row) if with_groups else row)
    return output.getvalue().splitlines()


def read_resets(file: Path) -> Resets:
    found: dict[str | None, dict[TopicPartition, int]] = {}
    with file.open(encoding="utf-8", errors="replace", newline="") as lines:
        for number, row in enumerate(_rows(file, csv.reader(lines)), 1):
            if row:
                group, one, offset = _parse(f"{file}, line {number}", row)
                if one in found.setdefault(group, {}):
                    raise BadValue(f"{file}, line {number}: {one} stands there more than once")
                found[group][one] = offset
    if not found:
        raise BadValue(f"{file}: has no lines such as orders,0,42")
    if None in found and len(found) > 1:
        raise BadValue(f"{file}: either all lines begin with a group or none does")
    return found


def _rows(file: Path, lines: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise BadValue(f"{file}: is not CSV: {error}") from None


def _parse(where: str, row: list[str]) -> tuple[str | None, TopicPartition, int]:
    cells = [cell.strip() for cell in row]
    numbers = cells[-2:]
    is_good = len(cells) in (3, 4) and all(map(_NUMBER.fullmatch, numbers))
    if not is_good:
        raise BadValue(f"{where}: must be TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET")
    group = cells[0] if len(cells) == 4 else None
    return group, TopicPartition(cells[-3], int(numbers[0])), int(numbers[1])
