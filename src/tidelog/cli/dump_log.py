"""`tidelog dump-log`: what is in the files of a log, for people and for scripts.

Takes the flags of Kafka's own tool. What was found goes to the standard output, what is wrong
to the standard error, and the exit status is 1 if anything is.
"""

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.world.real.disk import RealDisk


def dump_log(
    files: Annotated[
        list[str], typer.Option(help="The files to dump, with commas between them.", metavar="A,B")
    ],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="A line a record, with key and payload.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="A line a record, without the content.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Of records, only key and payload.")
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option("--index-sanity-check", help="Compare indexes with their log; do not print."),
    ] = False,
    verify_index_only: Annotated[
        bool,
        typer.Option("--verify-index-only", help="The same, and say nothing of those that agree."),
    ] = False,
    max_message_size: Annotated[
        int, typer.Option(min=1, help="Bytes that one batch may decompress to.")
    ] = DECOMPRESSED_BYTES_MAX,
    max_bytes: Annotated[
        int | None, typer.Option(min=0, help="Read only so many bytes of each log.")
    ] = None,
) -> None:
    """Print the content of log segments, indexes, snapshots and checkpoints.

    The name of a file says what is in it. Control characters in keys and payloads are shown
    escaped, so that a record is one line.
    """
    options = DumpOptions(
        print_data_log=print_data_log,
        deep_iteration=deep_iteration,
        skip_record_metadata=skip_record_metadata,
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
        max_message_size=max_message_size,
        max_bytes=max_bytes,
    )
    paths = [path for names in files for path in names.split(",") if path]
    if not paths:
        raise typer.BadParameter("names no file", param_hint="--files")
    try:
        all_good = _print(paths, options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as in `| head`; the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if not all_good:
        raise typer.Exit(1)


def _print(paths: list[str], options: DumpOptions) -> bool:
    """Prints as it reads; true if nothing was wrong."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    write = sys.stdout.write
    disk = RealDisk()
    all_good = True
    for path in paths:
        for line in dump(disk, path, options):
            if isinstance(line, Problem):
                all_good = False
                sys.stdout.flush()
                sys.stderr.write(f"{line}\n")
            else:
                write(f"{line}\n")
    return all_good
