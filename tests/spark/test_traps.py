"""The traps of Spark that source and sink work around (`spark.md` numbers them): each test shows
that the trap is still there, so that a newer Spark tells us when the way around it can go.
"""

import json
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from clients.confluent import send
from clients.samples import Sample
from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server
from support.topic_rows import ALL_COLUMNS
from tidelog.spark.arrow_batches import arrow_schema
from tidelog.spark.batch_reader import TidelogReader
from tidelog.spark.source import TidelogDataSource, spark_schema

_IDLE_CALLS = 20


def _stream_probe(notes: Path) -> type[DataSource]:
    """A source that notes down how it is called: 10 rows in each of two batches, then nothing."""

    class Reader(DataSourceStreamReader):
        def __init__(self) -> None:
            self.initial = 0

        def note(self, name: str, *values: Any) -> None:
            with notes.open("a") as file:
                file.write(json.dumps([name, *values]) + "\n")

        def initialOffset(self) -> dict[str, Any]:
            self.initial += 1
            self.note("initial", self.initial)
            return {"at": self.initial}

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            del limit
            self.note("latest", start["at"])
            return {"at": min(start["at"] + 10, self.initial + 20)}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            self.note("partitions", start["at"], end["at"])
            return [InputPartition((start["at"], end["at"]))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield from ((number,) for number in range(*partition.value))

        def commit(self, end: dict[str, Any]) -> None:
            self.note("commit", end["at"])

    class Probe(DataSource):
        @classmethod
        def name(cls) -> str:
            return "stream_probe"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            del schema
            return Reader()

    return Probe


@pytest.fixture(scope="module")
def calls(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What a query asked of its source in two batches, and while it was idle for a while."""
    folder = tmp_path_factory.mktemp("probe")
    notes = folder / "notes"
    spark.dataSource.register(_stream_probe(notes))
    writer = spark.readStream.format("stream_probe").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        deadline = time.monotonic() + 60
        while query.lastProgress is None or query.lastProgress.batchId < 1:
            assert query.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while len(_idle(_read(notes))) <= _IDLE_CALLS and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        query.stop()
    return _read(notes)


def _read(notes: Path) -> list[list[Any]]:
    """Of whole lines; the last may still be written."""
    return [json.loads(line) for line in notes.read_text().split("\n")[:-1]]


def _idle(calls: list[list[Any]]) -> list[list[Any]]:
    """The calls that ask for what is new, and are the same as the last of them."""
    asked = _of(calls, "latest")
    return [call for call in asked if call == asked[-1]]


def _of(calls: list[list[Any]], name: str) -> list[list[Any]]:
    return [call[1:] for call in calls if call[0] == name]


def test_trap_1_the_initial_offset_is_asked_for_twice_and_the_second_counts(
    calls: list[list[Any]],
) -> None:
    assert _of(calls, "initial") == [[1], [2]]
    assert _of(calls, "partitions")[0][0] == 2


def test_trap_6_the_commit_of_a_batch_comes_with_the_next_one(calls: list[list[Any]]) -> None:
    ends = [end for _, end in _of(calls, "partitions")]
    assert _of(calls, "commit") == [[end] for end in ends[:-1]]
    assert _of(calls, "latest")[-1] == [ends[-1]]


def test_trap_17_an_idle_stream_asks_again_and_again(calls: list[list[Any]]) -> None:
    assert len(_idle(calls)) > _IDLE_CALLS


def test_trap_2_overriding_push_filters_makes_reads_fail(spark: Any) -> None:
    class Reader(DataSourceReader):
        def pushFilters(self, filters: Any) -> Any:
            return filters

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            del partition
            yield (1,)

    class Probe(DataSource):
        @classmethod
        def name(cls) -> str:
            return "filter_probe"

        def schema(self) -> str:
            return "number INT"

        def reader(self, schema: Any) -> DataSourceReader:
            del schema
            return Reader()

    spark.dataSource.register(Probe)
    with pytest.raises(AnalysisException, match="filterPushdown"):
        spark.read.format("filter_probe").load().count()
    assert TidelogReader.pushFilters is DataSourceReader.pushFilters


def test_trap_8_the_source_registers_itself(spark: Any, two_topics: dict[str, Any]) -> None:
    """P1: nothing here has registered it."""
    reader = spark.read.format("tidelog").options(**two_topics["options"])
    assert reader.option("subscribe", two_topics["first"]).load().count() == 3


@pytest.fixture(scope="module")
def two_topics(log_server: Server, new_topic: NewTopicMaker) -> dict[str, Any]:
    """Of 3 and 5 records."""
    first, second = new_topic(), new_topic()
    sender = Producer({"bootstrap.servers": log_server.address})
    for topic, count in ((first, 3), (second, 5)):
        send(sender, topic, [Sample(key=None, value=b"x")] * count)
    options = {"kafka.bootstrap.servers": log_server.address}
    return {"first": first, "second": second, "options": options, "server": log_server}


@pytest.fixture
def base_table(spark: Any) -> Iterator[str]:
    spark.sql("CREATE TABLE trap_base USING tidelog")
    yield "trap_base"
    spark.sql("DROP TABLE trap_base")


def _with(topics: dict[str, Any], which: str) -> str:
    return (
        f"WITH (`kafka.bootstrap.servers`='{topics['server'].address}', "
        f"subscribe='{topics[which]}')"
    )


def test_trap_3_tables_forget_their_options_and_views_keep_them(
    spark: Any, two_topics: dict[str, Any], base_table: str
) -> None:
    with pytest.raises(AnalysisException, match=r"subscribe='t': .* SELECT \.\.\. FROM table WITH"):
        spark.sql("CREATE TABLE never USING tidelog OPTIONS (subscribe 't')")
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is missing"):
        spark.sql(f"SELECT * FROM {base_table}").count()
    assert spark.sql(f"SELECT * FROM {base_table} {_with(two_topics, 'first')}").count() == 3
    spark.sql(f"CREATE VIEW trap_view AS SELECT * FROM {base_table} {_with(two_topics, 'second')}")
    assert spark.table("trap_view").count() == 5
    spark.sql("DROP VIEW trap_view")


def test_trap_4_two_topics_of_one_base_table_in_one_query_are_mixed_up(
    spark: Any, two_topics: dict[str, Any], base_table: str
) -> None:
    first, second = (
        f"SELECT topic FROM {base_table} {_with(two_topics, which)}"
        for which in ("first", "second")
    )
    rows = spark.sql(f"{first} UNION ALL {second}").collect()
    assert {row["topic"] for row in rows} == {two_topics["first"]}, "right at last: 3 and 5 rows"


def test_trap_5_a_dataframe_keeps_the_tasks_of_its_first_action(
    spark: Any, log_server: Server, new_topic: NewTopicMaker
) -> None:
    topic = new_topic()
    sender = Producer({"bootstrap.servers": log_server.address})
    send(sender, topic, [Sample(key=None, value=b"x")])
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", log_server.address)
    frame = reader.option("subscribe", topic).load()
    assert frame.count() == 1
    send(sender, topic, [Sample(key=None, value=b"x")])
    assert frame.count() == 1
    assert reader.load().count() == 2


def test_trap_9_only_the_first_batch_is_looked_at() -> None:
    schema = spark_schema(ALL_COLUMNS)
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(ALL_COLUMNS))
    one_column = spark_schema(("key",))
    good = pa.record_batch([pa.array([b"x"], pa.binary())], names=["key"])
    bad = pa.record_batch([pa.array([b"x"], pa.large_binary())], names=["key"])
    source = TidelogDataSource({})
    passed = list(records_to_arrow_batches(iter([good, bad]), 10, one_column, source))
    assert passed == [good, bad]
    with pytest.raises(Exception, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
        list(records_to_arrow_batches(iter([bad]), 10, one_column, source))


def test_trap_12_there_is_one_limit_at_a_time_and_its_field_is_max_rows() -> None:
    assert ReadMaxRows(5).max_rows == 5
    reader = DataSourceStreamReader.getDefaultReadLimit
    assert reader.__annotations__["return"].__name__ == "ReadLimit"
    assert isinstance(reader(object()), ReadAllAvailable)  # type: ignore[arg-type]


def test_trap_15_a_source_is_not_asked_which_columns_are_used() -> None:
    methods = {name for name in vars(DataSourceReader) if not name.startswith("_")}
    assert methods == {"partitions", "pushFilters", "read"}


def test_traps_11_and_20_the_extra_of_spark_names_its_pipelines_and_an_old_pandas() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pyspark, pandas = project["optional-dependencies"]["spark"]
    assert pyspark.startswith("pyspark[pipelines]==")
    assert pandas == "pandas<3"


def test_trap_22_a_thread_does_not_find_the_sink_until_its_session_is_active(
    spark: Any, log_server: Server, new_topic: NewTopicMaker
) -> None:
    """The same after Ctrl-C in a notebook, which gives Spark's side a new thread."""
    rows = spark.range(1).selectExpr("'x' value")
    writer = rows.write.format("tidelog").option("kafka.bootstrap.servers", log_server.address)
    writer = writer.option("topic", new_topic()).mode("append")

    def save_when_active() -> None:
        spark.createDataFrame([], "number int")
        writer.save()

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            pool.submit(writer.save).result()
        pool.submit(save_when_active).result()
