"""Records as Arrow columns, both ways: what Spark, the cleaner, dump-log and the console use.

`decode` and `decode_stream` read record batches, `encode` writes them. Loops over records are
compiled; `reference` says what they mean. Never imported by the broker process.
"""

from tidelog.records.column_buffers import ALL_COLUMNS, HEADER, SCHEMA
from tidelog.records.column_decoder import Wanted, decode, decode_stream
from tidelog.records.column_encoder import encode

__all__ = ["ALL_COLUMNS", "HEADER", "SCHEMA", "Wanted", "decode", "decode_stream", "encode"]
