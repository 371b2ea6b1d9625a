"""What a task does: fetches its range, decodes it, and hands Spark Arrow batches.

Memory is that of one fetch and one batch, whatever the range. Records that are gone since the batch
was planned are reported as a loss; if that is no error, reading goes on behind them.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.fetching import DataLost, Range, RangeReader
from tidelog.records.column_decoder import Wanted, decode_stream
from tidelog.spark.arrow_batches import BATCH_BYTES_MAX, BatchMaker, decoded_columns
from tidelog.spark.losses import Losses
from tidelog.spark.options import SourceOptions


def read_range(wanted: Range, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    connecting = options.connecting
    client = Client(
        connecting.bootstrap_servers,
        client_id=connecting.client_id,
        timeout_ms=min(connecting.timeout_ms, connecting.read_timeout_ms),
    )
    losses = Losses(is_error=options.fail_on_data_loss)
    with (
        client,
        RangeReader(
            client,
            partition_bytes_max=connecting.partition_bytes_max,
            wait_ms_max=connecting.wait_ms_max,
            isolation_level=int(connecting.committed_only),
            patience_ms=connecting.read_timeout_ms,
        ) as reader,
    ):
        while wanted.start < wanted.end:
            try:
                yield from _read(reader, wanted, options)
                return
            except DataLost as lost:
                losses.report(lost.message)
                wanted = replace(wanted, start=lost.next_there)
            except KafkaError as error:
                if error.code is not ErrorCode.unknown_topic_or_partition:
                    raise
                losses.report(
                    f"{wanted}: offsets {wanted.start} to {wanted.end - 1} are gone, "
                    f"and all of the partition: {error.message}"
                )
                return


def _read(reader: RangeReader, wanted: Range, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    # The fetch has checked the CRCs.
    choice = Wanted(
        first=wanted.start, last=wanted.end - 1, columns=decoded_columns(options.columns)
    )
    maker = BatchMaker(wanted.topic, wanted.partition, options.columns)
    for chunk in reader.read(wanted):
        for decoded in decode_stream(chunk, choice, chunk_bytes=BATCH_BYTES_MAX):
            yield from maker.make(decoded)
