"""`tidelog produce`: lines, or what is given as arguments, become the records of a topic.

A pipe is written as it comes, in batches; at a terminal each line is sent when it is entered.
The command ends when everything was acknowledged, with status 1 if something was not.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import (
    BOOTSTRAP_SERVER,
    Bootstrap,
    OtherFlags,
    Zookeeper,
    client_properties,
    one_of,
    split_assignments,
)
from tidelog.cli.piped_lines import piped_lines
from tidelog.cli.printing import checked, complain, remark
from tidelog.cli.record_lines import InputRecord, LineReader, line_reader

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS: Final = ("all", "-1", "1", "0")


class Style(OtherFlags):
    """The flags of kafka-console-producer that are settings of its producer."""

    renamed: Mapping[str, str] = {
        flag: f"--producer-property={name}="
        for flag, name in {
            "--batch-size": "batch.size",
            "--max-partition-memory-bytes": "batch.size",
            "--message-send-max-retries": "message.send.max.retries",
            "--metadata-expiry-ms": "topic.metadata.refresh.interval.ms",
            "--request-timeout-ms": "request.timeout.ms",
            "--retry-backoff-ms": "retry.backoff.ms",
            "--socket-buffer-size": "socket.send.buffer.bytes",
            "--timeout": "linger.ms",
        }.items()
    }
    refused: Mapping[str, str] = {
        "--line-reader": "lines are read as --property says: leave it out",
        "--max-block-ms": "use --producer-property message.timeout.ms=MS",
        "--max-memory-bytes": "use --producer-property queue.buffering.max.kbytes=KB",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, codec_named(args))


def codec_named(arguments: list[str]) -> list[str]:
    """In Kafka `--compression-codec` without a value is gzip."""
    found = []
    for place, given in enumerate(arguments):
        following = arguments[place + 1 : place + 2]
        is_bare = given == "--compression-codec" and (not following or following[0][:1] == "-")
        found.append(f"{given}=gzip" if is_bare else given)
    return found


_Topic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Where to.")]
_Values = Annotated[
    list[str] | None,
    typer.Argument(metavar="VALUE", help="Records; without any, lines are read instead."),
]
_TopicFlag = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Where to.")]
_Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")
]
_KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE."),
]
_Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record."),
]
_Headers = Annotated[
    bool, typer.Option("--headers", help="Lines begin with NAME:VALUE,NAME:VALUE and a tab.")
]
_NullMarker = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What stands for null, as in a tombstone.")
]
_Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="[default: by the key]"),
]
_Acks = Annotated[
    str,
    typer.Option("--acks", "--request-required-acks", metavar="ACKS", help="all, 1 or 0."),
]
_Compression = Annotated[
    str,
    typer.Option(
        "--compression", "--compression-codec", "-z", metavar="CODEC", help=f"{', '.join(_CODECS)}."
    ),
]
_Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--reader-property",
        metavar="NAME=VALUE",
        help="Of kafka-console-producer, such as parse.key=true.",
    ),
]
_PropertiesFile = Annotated[
    Path | None,
    typer.Option("--reader-config", metavar="FILE", help="Such properties, one a line."),
]
_ProducerProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--producer-property",
        "--command-property",
        metavar="NAME=VALUE",
        help="A setting of librdkafka.",
    ),
]
_ProducerFile = Annotated[
    Path | None,
    typer.Option(
        "--command-config", "--producer.config", metavar="FILE", help="Such settings, one a line."
    ),
]
_Sync = Annotated[
    bool, typer.Option("--sync", help="Wait for each record to be written before the next.")
]
_BrokerList = Annotated[
    str | None,
    typer.Option("--broker-list", hidden=True, help="What --bootstrap-server was once called."),
]


def produce(
    topic: _Topic = None,
    values: _Values = None,
    topic_flag: _TopicFlag = None,
    key: _Key = None,
    key_separator: _KeySeparator = None,
    header: _Header = None,
    headers: _Headers = False,
    null_marker: _NullMarker = None,
    partition: _Partition = None,
    acks: _Acks = "all",
    compression: _Compression = "none",
    properties: _Properties = None,
    properties_file: _PropertiesFile = None,
    producer_properties: _ProducerProperties = None,
    producer_file: _ProducerFile = None,
    sync: _Sync = False,
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
    broker_list: _BrokerList = None,
    _zookeeper: Zookeeper = None,
) -> None:
    """Write records to a topic: one for each line, or for each VALUE.

    \b
    For example:
      tidelog produce orders 'first' 'second'
      tidelog produce orders < lines.txt
      echo 'alice:{"total": 5}' | tidelog produce orders --key-separator :
      tidelog produce users --key alice --null-marker NULL NULL
    With the flags of kafka-console-producer.sh:
      tidelog produce --bootstrap-server 127.0.0.1:9092 --topic orders \\
        --property parse.key=true --property key.separator=:

    A key goes to the partition that Kafka's Java clients choose for it.
    """
    given = client_properties(properties_file, properties, "--property")
    if key_separator is not None:
        given |= {"parse.key": "true", "key.separator": key_separator}
    if headers:
        given["parse.headers"] = "true"
    if null_marker is not None:
        given["null.marker"] = null_marker
    reader = line_reader(given)
    if key is not None and reader.parse_key:
        raise BadValue(f"--key {key}: lines have keys of their own here: leave out one of the two")
    same = _common(key, split_assignments(header, "--header"))
    settings = {
        "acks": one_of(acks, _ACKS, "--acks"),
        "compression.type": one_of(compression, _CODECS, "--compression"),
        **client_properties(producer_file, producer_properties, "--producer-property"),
    }
    name, arguments = _topic_and_values(topic, values or [], topic_flag)

    from tidelog.cli.producing import Destination, write_records

    where = Destination(topic=name, partition=partition, bootstrap=broker_list or bootstrap)
    write_records(where, _records(arguments, reader, same), settings, one_by_one=sync)


def _topic_and_values(
    topic: str | None, values: list[str], flag: str | None
) -> tuple[str, list[str]]:
    if flag is not None:
        return flag, [*([topic] if topic is not None else ()), *values]
    if topic is None:
        raise BadValue("name a topic: tidelog produce TOPIC")
    return topic, values


def _common(key: str | None, headers: dict[str, str]) -> InputRecord:
    """What all records have."""
    return InputRecord(
        value=None,
        key=None if key is None else _bytes(key),
        headers=tuple((checked(name), _bytes(value)) for name, value in headers.items()),
    )


def _records(
    values: list[str], reader: LineReader, same: InputRecord
) -> Iterator[InputRecord | None]:
    """None where the next one has not come yet, now and then."""
    is_typed = not values and sys.stdin.isatty()
    lines: Iterable[bytes | None] = map(_bytes, values)
    if not values:
        lines = _typed_lines() if is_typed else _piped_lines()
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        try:
            record = reader.read(line if values else line.removesuffix(b"\r"), number)
        except BadValue as error:
            if not is_typed:
                raise
            complain(error)
            continue
        key = same.key if record.key is None and not reader.parse_key else record.key
        yield replace(record, key=key, headers=same.headers + record.headers)


def _piped_lines() -> Iterator[bytes | None]:
    pipe = sys.stdin.buffer
    assert isinstance(pipe, BufferedIOBase)
    return piped_lines(pipe)


def _typed_lines() -> Iterator[bytes]:
    """A person is shown where to type, as in Kafka's tool."""
    remark("One record a line; Ctrl-D ends.")
    while True:
        sys.stderr.write(">")
        sys.stderr.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            break
        yield line.removesuffix(b"\n")
    remark("")


def _bytes(argument: str) -> bytes:
    return argument.encode("utf-8", "surrogateescape")
