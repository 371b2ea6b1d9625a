"""What groups and transactions cost the broker, and what exactly once costs a Spark query.

`python -m bench groups [--quick] [--only NAME,...]` measures how soon a large group settles after a
change, offset commits, idempotent beside plain producers, fetches beside open transactions, and
the exactly-once sink beside the other. Members are real ones, on connections of their own.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.groups.commits import commits
from bench.groups.open_transactions import open_transactions
from bench.groups.place import FULL, QUICK, Place
from bench.groups.producing import bulk_producing, producing
from bench.groups.settling import settling
from bench.groups.sink import sink
from bench.load.brokers import DELETES_AT_ONCE, Tidelog
from bench.load.contest import Row, Side, add_only, taken
from bench.load.generator import Generator
from tidelog.base.errors import ErrorCode

FOLDER = (Path(".bench") / f"groups-{os.getpid()}").absolute()
SCENARIOS: dict[str, Callable[[Place], list[Row]]] = {
    "settling": settling,
    "commits": commits,
    "producing": producing,
    "bulk": bulk_producing,
    "transactions": open_transactions,
    "sink": sink,
}
SETTINGS = {
    **DELETES_AT_ONCE,
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
_FIND_COORDINATOR = 10
_KINDS = {"group": 0, "transaction": 1}
_READY_SECONDS_MAX = 30


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench groups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: 2 minutes")
    add_only(parser, SCENARIOS)
    return parser.parse_args(arguments)


def await_coordinators(place: Place) -> None:
    """Their topics are made when they are first asked for."""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    with place.link() as link:
        for kind in _KINDS.values():
            values = {"key_type": kind, "coordinator_keys": ["bench"]}
            while link.ask(_FIND_COORDINATOR, 4, values).coordinators[0].error_code is not (
                ErrorCode.none
            ):
                if time.monotonic() > deadline:
                    raise RuntimeError("there are no coordinators")
                time.sleep(0.05)


def run(arguments: Sequence[str] = ()) -> list[Row]:
    options = parse(arguments)
    generator = Generator.find()
    if generator is None:
        return []
    # Whoever is told to end must take the broker and Spark with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    broker = Tidelog(FOLDER / "broker")
    broker.settings = SETTINGS
    try:
        broker.start()
        effort = QUICK if options.quick else FULL
        place = Place(side=Side(broker, generator), folder=FOLDER, effort=effort)
        await_coordinators(place)
        return taken({name: partial(SCENARIOS[name], place) for name in options.only})
    except RuntimeError as error:
        print(f"groups were not measured: {error}", file=sys.stderr)
        return []
    finally:
        broker.stop()
        generator.close()
        shutil.rmtree(FOLDER, ignore_errors=True)
