"""`tidelog trials`: explore how the cluster's machines behave when everything goes wrong.

`run` explores histories from as many seeds, on all cores; `replay` shows one of them, a line for
each event. The same seed gives the same history everywhere.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import fields
from itertools import islice
from os import cpu_count, urandom
from time import monotonic
from typing import Annotated

import typer

from tidelog.cli.printing import say, say_table
from tidelog.trials.counts import Counts
from tidelog.trials.exploring import Failure, explore, replay
from tidelog.trials.violation import Violation

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

CHUNK = 20
"""Histories that a process explores before it tells."""
PROGRESS_S = 2.0

Outcome = tuple[Counts, Failure | None]


@app.callback()
def trials() -> None:
    """Explore how the cluster's machines behave when everything goes wrong."""


@app.command()
def run(
    seeds: Annotated[int, typer.Option(min=1, help="How many histories to explore.")] = 1_000,
    first: Annotated[
        int | None, typer.Option(min=0, help="The first seed; drawn if not given.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; one for each core if not given.")
    ] = None,
) -> None:
    """Explores histories: crashes, cuts, pauses, lost sessions, and clients that remember."""
    if first is None:
        first = int.from_bytes(urandom(4), "big")
    workers = jobs or cpu_count() or 1
    say(f"seeds {first} to {first + seeds - 1}, {workers} processes")
    started = monotonic()
    total, failure = _explore_all(range(first, first + seeds), workers)
    elapsed = monotonic() - started
    _say_counts(total)
    say(f"{total.histories} histories in {elapsed:.1f} s: {total.histories / elapsed:.1f} a second")
    if failure is not None:
        say(str(failure))
        raise typer.Exit(1)
    say("no violation")


@app.command("replay")
def replay_command(
    seed: Annotated[int, typer.Option(min=0, help="The seed of the history.")],
) -> None:
    """Shows one history, a line for each event."""
    outcome = replay(seed, say)
    if isinstance(outcome, Violation):
        say(f"{outcome.invariant} is violated: {outcome.what}")
        raise typer.Exit(1)
    _say_counts(outcome)
    say("no violation")


def _explore_all(seeds: range, workers: int) -> Outcome:
    total = Counts()
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    progress = _Progress(len(seeds))
    with ProcessPoolExecutor(workers) as pool:
        running: set[Future[Outcome]] = {
            pool.submit(explore, chunk) for chunk in islice(chunks, 2 * workers)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for counts, failure in (future.result() for future in done):
                total.add(counts)
                if failure is not None:
                    pool.shutdown(cancel_futures=True)
                    return total, failure
            running |= {pool.submit(explore, chunk) for chunk in _take(chunks, len(done))}
            progress.show(total)
    return total, None


def _take(chunks: Iterator[range], count: int) -> Iterator[range]:
    return islice(chunks, count)


class _Progress:
    """A line now and then, on the standard error."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._started = self._shown = monotonic()

    def show(self, total: Counts) -> None:
        now = monotonic()
        if now - self._shown >= PROGRESS_S:
            self._shown = now
            rate = total.histories / (now - self._started)
            end = "\r" if sys.stderr.isatty() else "\n"
            line = f"{total.histories} of {self._seeds} histories, {rate:.1f} a second"
            print(line, end=end, file=sys.stderr, flush=True)


def _say_counts(counts: Counts) -> None:
    names = [each.name for each in fields(counts) if each.name not in ("histories", "virtual_ms")]
    rows: list[tuple[str, object]] = [(n.replace("_", " "), getattr(counts, n)) for n in names]
    rows.append(("simulated seconds", counts.virtual_ms // 1_000))
    say_table(("what happened", "count"), rows)
