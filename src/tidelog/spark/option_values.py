"""Options as Spark hands them over, read one by one: names in any case, every value a text.

A value that cannot be used is refused with the option's name, the value and what is allowed; so is
an option that nobody reads, since whoever set it counts on it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from tidelog.base.errors import BadValue

INT64_MAX: Final = (1 << 63) - 1
_DURATION: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


class OptionValues:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def refuse_unknown(self, known: Sequence[str], refused: Mapping[str, str]) -> None:
        """`refused` says of options that others have why they cannot be used here; a name that
        ends in a dot stands for all that begin with it."""
        names = {name.lower(): name for name in known}
        for given in sorted(self._values):
            if given in names:
                continue
            for name, why in refused.items():
                if given == name.lower() or (name[-1] == "." and given.startswith(name.lower())):
                    spelled = name if name[-1] != "." else given
                    raise BadValue(f"option {spelled}={self._values[given]!r}: {why}")
            near = [names[one] for one in get_close_matches(given, names, 1)]
            advice = f"did you mean {near[0]}? " if near else ""
            raise BadValue(
                f"option {given}={self._values[given]!r}: there is no such option; {advice}"
                f"allowed are {', '.join(known)}"
            )

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def needed(self, name: str, what: str) -> str:
        value = self.text(name)
        if value is None or not value.strip():
            raise BadValue(f"option {name} is missing: it must be {what}")
        return value

    def names(self, name: str, what: str) -> tuple[str, ...]:
        """At least one, each once, with commas between them."""
        parts = tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())
        if not parts or len(set(parts)) != len(parts):
            raise self.bad(name, f"{what}, with commas between them, each once")
        return parts

    def whole(self, name: str, default: int, *, least: int = 1) -> int:
        found = self.optional_whole(name, least=least)
        return default if found is None else found

    def optional_whole(self, name: str, *, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        text = text.strip()
        if not re.fullmatch(r"\d{1,19}", text) or not least <= int(text) <= INT64_MAX:
            raise self.bad(name, f"a whole number of at least {least}")
        return int(text)

    def truth(self, name: str, default: bool) -> bool:
        chosen = self.choice(name, ("true", "false"), str(default).lower())
        return chosen == "true"

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = (self.text(name) or default).strip().lower()
        if value not in allowed:
            raise self.bad(name, " or ".join(allowed))
        return value

    def duration_ms(self, name: str, default: int) -> int:
        """As Spark writes them: `15m`, `30s`, `200ms`; a number alone counts milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.strip().lower())
        if match is None:
            raise self.bad(name, "a time such as 15m, 30s or 500ms")
        return int(match[1]) * _UNITS_US[match[2] or "ms"] // 1000

    def partition_numbers(self, name: str) -> dict[str, dict[int, int]]:
        """Such as {"events":{"0":23,"1":-2}}: a number for each partition of each topic."""
        found: dict[str, dict[int, int]] = {}
        for topic, numbers in self._object(name, _PER_PARTITION).items():
            if not isinstance(numbers, dict) or not numbers:
                raise self.bad(name, _PER_PARTITION)
            found[topic] = {}
            for partition, number in numbers.items():
                is_number = isinstance(number, int) and not isinstance(number, bool)
                if not re.fullmatch(r"\d{1,9}", partition) or not is_number:
                    raise self.bad(name, _PER_PARTITION)
                found[topic][int(partition)] = number
        return found

    def partition_lists(self, name: str) -> dict[str, tuple[int, ...]]:
        """Such as {"events":[0,1]}."""
        found: dict[str, tuple[int, ...]] = {}
        for topic, partitions in self._object(name, _PARTITIONS).items():
            are_indexes = isinstance(partitions, list) and all(
                isinstance(one, int) and not isinstance(one, bool) and one >= 0
                for one in partitions
            )
            if not are_indexes or not partitions or len(set(partitions)) != len(partitions):
                raise self.bad(name, _PARTITIONS)
            found[topic] = tuple(sorted(partitions))
        return found

    def _object(self, name: str, what: str) -> dict[str, Any]:
        try:
            found = json.loads(self.text(name) or "")
        except ValueError:
            raise self.bad(name, what) from None
        if not isinstance(found, dict) or not found:
            raise self.bad(name, what)
        return found

    def bad(self, name: str, allowed: str) -> BadValue:
        return BadValue(f"option {name}={self.text(name)!r}: must be {allowed}")


_PER_PARTITION: Final = 'JSON with a number for each partition, such as {"events":{"0":23,"1":40}}'
_PARTITIONS: Final = 'JSON with the partitions of each topic, such as {"events":[0,1]}'
