"""The process that the demo kills: appends batches for ever, and says so after each.

A line is the number of records that are acknowledged by then. Closed segments are flushed, as
a broker does in the background. It ends when nobody reads its lines.
"""

import signal
import sys
from typing import Final

from tidelog.cli.demo_stage import IDENTITY, LEADER_EPOCH, PAYMENTS, SETTINGS, orders
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.records.reference import encode_batch
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk

RECORDS_PER_BATCH: Final = 10


def write_for_ever(folder: str) -> None:
    clock = RealClock()
    logs = Logs([LogDir(folder, RealDisk(), clock)])
    logs.open(IDENTITY, SETTINGS.__getitem__)
    log = logs.create(PAYMENTS, SETTINGS[PAYMENTS])
    template = encode_batch(orders(RECORDS_PER_BATCH, clock.now_ms()))
    while True:
        now_ms = clock.now_ms()
        log.append_as_leader(bytearray(template), LEADER_EPOCH, now_ms)
        print(log.log_end_offset, flush=True)
        if log.flush_is_due(now_ms):
            logs.flush()


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; when this ends is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        write_for_ever(sys.argv[1])
    except BrokenPipeError:
        sys.stderr.close()
