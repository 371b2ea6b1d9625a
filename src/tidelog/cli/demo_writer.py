"""The process that the demo kills: appends batches for ever, and says so after each.

A line is the number of records that are acknowledged by then. It ends when nobody reads them.
"""

import signal
import sys
from typing import Final

from tidelog.cli.demo_stage import IDENTITY, LEADER_EPOCH, PAYMENTS, SETTINGS, orders
from tidelog.log.log_dir import LogDir
from tidelog.records.reference import encode_batch
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk

RECORDS_PER_BATCH: Final = 10


def write_for_ever(folder: str) -> None:
    clock = RealClock()
    log_dir = LogDir(folder, RealDisk(), clock)
    log_dir.open(IDENTITY, SETTINGS.__getitem__)
    log = log_dir.create_log(PAYMENTS, SETTINGS[PAYMENTS])
    template = encode_batch(orders(RECORDS_PER_BATCH, clock.now_ms()))
    while True:
        log.append_as_leader(bytearray(template), LEADER_EPOCH, clock.now_ms())
        print(log.log_end_offset, flush=True)


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; when this ends is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        write_for_ever(sys.argv[1])
    except BrokenPipeError:
        sys.stderr.close()
