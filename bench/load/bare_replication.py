"""What copies cost the least that is possible in Python: bare servers and a bare follower.

One copy is received, checked and written; each of two more is sent from the file, received, checked
and written. All in requests of 1 MB, so that what is left is what the bytes themselves cost.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.load.bare_servers import FETCHED_FILE
from bench.load.cluster_side import ClusterSide
from bench.load.contest import Row, row
from bench.load.machine import bare_run, bare_server
from bench.load.processes import fine_cpu_seconds
from bench.load.used_memory import use_memory

COPIES_MORE = 2
SHAPE = 8, 1
"""Batches in a piece, and threads."""


class Followed(NamedTuple):
    speed: float
    cpu_per_gb: float


def bare_follower(port: int, path: Path, shape: tuple[int, int]) -> Followed:
    command = [sys.executable, "-m", "bench.load.bare_follower", str(port), str(path)]
    command += [str(number) for number in shape]
    use_memory(path.parent, FETCHED_FILE / 1e6)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    path.unlink()
    return Followed(*map(float, done.stdout.split()))


def bare_replication_cost(side: ClusterSide, rounds: int) -> Row:
    folder = side.cluster.folder
    written = folder / "bare-written"
    with bare_server("produce", folder / "bare") as (pid, port):
        produce = bare_run(side.generator, "produce", pid, port)
        produce()
        once = median(produce().cpu_per_gb for _ in range(rounds))
    with bare_server("fetch", folder / "bare") as (pid, port):
        bare_follower(port, written, SHAPE)
        before = fine_cpu_seconds(pid)
        followed = median(bare_follower(port, written, SHAPE).cpu_per_gb for _ in range(rounds))
        sent = (fine_cpu_seconds(pid) - before) / rounds / FETCHED_FILE * 1e9
    return row(
        "bare programs: CPU of a GB at RF 3, of RF 1",
        1 + COPIES_MORE * (sent + followed) / once,
        f"x ({once:.2g} s once; {sent:.2g} s to send and {followed:.2g} s to follow each more)",
    )
