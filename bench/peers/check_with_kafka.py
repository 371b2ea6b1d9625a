"""Lets Apache Kafka's own tool judge folders that tidelog wrote.

    python -m bench.peers.check_with_kafka <folder> ...

A folder is a replica's or a log dir with several. The tool must read every record, find every
CRC right and every index in agreement with its log, and print the same lines as
`tidelog dump-log`. The exit status is 1 if it does not; 0 if it does, and also where Java or
Maven is missing, which is said.
"""

import re
import sys
from pathlib import Path

from bench.peers.kafka_peer import KafkaHome
from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.world.real.disk import RealDisk

KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
# The tool calls the first offset of a log a gap, and compaction leaves gaps: those are not faults.
GAP = re.compile(r"Non-consecutive offsets in .*|  (?P<first>-?\d+) is followed by (?P<next>-?\d+)")
# It takes a batch that compaction has emptied for one without a time; Kafka's own logs have it.
EMPTIED = re.compile(r"Found timestamp mismatch in :.*|  Index timestamp: \d+, log timestamp: -1")
OURS_ALONE = (": never written", ".log is empty.", ".timeindex is empty.")


def replicas(folders: list[Path]) -> list[Path]:
    return sorted({path.parent for folder in folders for path in folder.rglob("*.log")})


def files_of(replica: Path, kinds: tuple[str, ...] = KINDS) -> list[str]:
    return sorted(str(path) for path in replica.iterdir() if path.suffix in kinds)


def complaints(error: str) -> list[str]:
    """What the tool says on its error stream and means."""
    found = []
    for line in error.splitlines():
        gap = GAP.fullmatch(line)
        goes_back = gap is not None and gap["next"] and int(gap["next"]) <= int(gap["first"])
        if goes_back or not (gap or EMPTIED.fullmatch(line)):
            found.append(line)
    return found


def check(home: KafkaHome, replica: Path) -> list[str]:
    """What is wrong with a replica's folder."""
    by_record = home.dump(files_of(replica), "--print-data-log")
    found = complaints(by_record.err)
    if by_record.status != 0:
        found.append(f"the tool ended with status {by_record.status}")
    for line in by_record.out.splitlines():
        if line.startswith("baseOffset: ") and not line.endswith("isvalid: true"):
            found.append(line)
        if re.fullmatch(r"Found \d+ invalid bytes at the end of .*", line):
            found.append(line)
    indexes = files_of(replica, (".index", ".timeindex"))
    sane = home.dump(indexes, "--index-sanity-check")
    for index in indexes:
        if not {f"{index} passed sanity check.", f"{index} is empty."} & set(sane.out.splitlines()):
            found.append(f"{index} did not pass the sanity check: {sane.err}")
    return found + differences(home.dump(files_of(replica)).out, replica)


def differences(theirs: str, replica: Path) -> list[str]:
    """Lines that tidelog prints otherwise."""
    lines = [line for path in files_of(replica) for line in dump(RealDisk(), path, DumpOptions())]
    found = [f"tidelog says: {line}" for line in lines if isinstance(line, Problem)]
    ours = [
        line for line in lines if not isinstance(line, Problem) and not line.endswith(OURS_ALONE)
    ]
    pairs = zip(theirs.removesuffix("\n").split("\n"), ours, strict=False)
    found += [f"Kafka: {line}\n  ours: {our}" for line, our in pairs if line != our][:1]
    if len(ours) != theirs.count("\n"):
        found.append(f"Kafka prints {theirs.count(chr(10))} lines, tidelog {len(ours)}")
    return found


def main() -> int:
    folders = [Path(argument).resolve() for argument in sys.argv[1:]]
    if not folders:
        print(__doc__, file=sys.stderr)
        return 2
    home = KafkaHome.find()
    if home is None:
        print("not checked")
        return 0
    found = replicas(folders)
    if not found:
        print(f"there is no .log file in {', '.join(map(str, folders))}", file=sys.stderr)
        return 1
    bad = 0
    for replica in found:
        wrong = check(home, replica)
        bad += bool(wrong)
        print(f"{replica.name}: {'wrong' if wrong else 'good'}")
        for line in wrong[:20]:
            print(f"  {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
