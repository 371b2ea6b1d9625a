"""`python -m bench [name ...]`: the table of what things cost, with what they were meant to cost.

Each `*_bench.py` beside this file has a `run` that gives rows of name, value, unit and target; what
follows the names from the first option on is for it (`python -m bench cluster --help`). A benchmark
is not a test: it exits with 0 whatever it finds.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WITH_OPTIONS = ("broker", "cluster", "groups", "log", "spark")


def names() -> list[str]:
    return sorted(
        path.stem.removesuffix("_bench") for path in Path(__file__).parent.glob("*_bench.py")
    )


def shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Names of benchmarks, and options for them."""
    first = next((n for n, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return arguments[:first], arguments[first:]


def main(arguments: list[str]) -> int:
    wanted, options = split(arguments)
    console = Console(width=None if sys.stdout.isatty() else 130)
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        console.print(f"no benchmark {', '.join(unknown)}; there are {', '.join(names())}")
        return 1
    if options and wanted not in [[name] for name in WITH_OPTIONS]:
        told = " ".join(options)
        takers = ", ".join(f"`{name}`" for name in WITH_OPTIONS)
        console.print(f"only {takers} take options, each alone: {told}")
        return 1
    table = Table("what", "measured", "", "wanted")
    for name in wanted or names():
        console.print(f"measuring {name} ...", style="dim")
        measure = import_module(f"bench.{name}_bench").run
        for row in measure(options) if options else measure():
            table.add_row(row["name"], shown(row["value"]), row["unit"], str(row["target"] or ""))
        table.add_section()
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
