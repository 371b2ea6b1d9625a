"""Part three of the demo: three brokers, a pipeline on Spark, a leader that dies, and an audit.

Nothing waits for a time to pass: each step begins when the one before it was seen to be done. All
counts at the end are sets of places (topic, partition, offset), compared with one another.
"""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.cli.connect_server import ConnectServer
from tidelog.cli.demo_orders import Orders
from tidelog.cli.demo_screen import Screen
from tidelog.cli.free_ports import free_row
from tidelog.cli.local_cluster import LocalBroker, LocalCluster
from tidelog.cli.pipeline_project import Project, find_project, make_project
from tidelog.cli.pipeline_run import run_once
from tidelog.client.client import Client
from tidelog.client.topics import NewTopic, create_topics
from tidelog.spark.audited_files import earliest_offsets, of_cluster
from tidelog.spark.dead_letter_format import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "orders"
CLEAN: Final = f"{TOPIC}.clean"
DEAD: Final = f"{TOPIC}.dlq"
PARTITIONS: Final = 3
LOOK_S: Final = 0.05
SECONDS_MAX: Final = 60.0
SETTINGS: Final = {"min.insync.replicas": "2", "default.replication.factor": "3"}


class Story:
    def __init__(self, screen: Screen, folder: Path) -> None:
        self._screen = screen
        self._folder = folder
        port = free_row(4)
        self._cluster = LocalCluster(folder / "cluster", 3, port, port + 3, SETTINGS)
        self._ledger = folder / "ledger.csv"
        self._orders: Orders | None = None
        self._killed_at = 0.0
        self._victim: LocalBroker | None = None

    def tell(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._cluster.kill)
            self._start_cluster()
            project = self._make_project()
            orders = self._orders = Orders(self._cluster.bootstrap, TOPIC, self._ledger)
            orders.start()
            server = stack.enter_context(self._start_spark(project))
            self._first_run(project, server.address)
            self._run_while_a_leader_dies(project, server.address)
            self._bring_back()
            self._last_run(project, server.address)
            self._count_and_audit(server.address)

    def _start_cluster(self) -> None:
        self._screen.step("A cluster: ZooKeeper and three brokers (tidelog up)")
        for line in self._cluster.starting():
            self._screen.quote(line)
        with Client(self._cluster.bootstrap) as client:
            new = [
                NewTopic(name=name, partition_count=PARTITIONS, replication_factor=3)
                for name in (TOPIC, CLEAN, DEAD)
            ]
            for name, error in create_topics(client, new).items():
                assert error is None, f"{name}: {error}"
        self._screen.say(
            f"Topics {TOPIC}, {CLEAN} and {DEAD}, each with {PARTITIONS} partitions of three "
            "replicas; a record is acknowledged when at least two have it."
        )

    def _make_project(self) -> Project:
        self._screen.step("A pipeline (tidelog pipeline init shop)")
        folder = self._folder / "shop"
        make_project(folder, topic=TOPIC, bootstrap=self._cluster.bootstrap)
        self._screen.say(
            "bronze takes the records as they are, silver parses them, gold sums them up; what "
            f"parses is published to {CLEAN}, what does not is buried in {DEAD}."
        )
        self._screen.command(f"less {folder}/transformations/records.py")
        return find_project(folder)

    def _start_spark(self, project: Project) -> ConnectServer:
        self._screen.step("Spark starts, while orders are coming in")
        self._screen.say(
            "A producer sends orders with acks=all, and now and then something that is none. "
            f"What is acknowledged is noted in {self._ledger}."
        )
        began = time.monotonic()
        server = ConnectServer(project.folder, "local[2]", project.folder / "spark.log")
        server.start()
        self._screen.say(f"A Spark Connect server is up after {time.monotonic() - began:.1f} s.")
        return server

    def _first_run(self, project: Project, address: str) -> None:
        assert self._orders is not None
        self._screen.step("A first run of the pipeline (tidelog pipeline run)")
        seconds = run_once(project, address, tell=self._screen.quote)
        self._screen.say(
            f"It took {seconds:.1f} s; {self._orders.acknowledged:,} records are acknowledged now."
        )

    def _run_while_a_leader_dies(self, project: Project, address: str) -> None:
        assert self._orders is not None
        self._screen.step("A second run, and a leader is killed in the middle of it")
        seconds = run_once(project, address, tell=self._told)
        assert self._victim is not None, "bronze was seen to run"
        _wait(self._has_recovered, "orders are acknowledged again")
        pause_s = self._orders.pause_after(self._killed_at)
        self._screen.say(f"The run took {seconds:.1f} s and noticed nothing.")
        self._screen.notice(
            f"The longest time without an acknowledged record since the kill: {pause_s:.2f} s."
        )

    def _told(self, line: str) -> None:
        self._screen.quote(line)
        if "bronze running" in line and self._victim is None:
            self._kill_a_leader()

    def _kill_a_leader(self) -> None:
        with Client(self._cluster.bootstrap) as client:
            leader = client.cluster([TOPIC]).topic(TOPIC).partitions[0].leader
        self._victim = self._cluster.brokers[leader - 1]
        process_id = self._victim.process_id
        self._victim.end(signal.SIGKILL)
        self._killed_at = time.monotonic()
        self._screen.notice(f"kill -9 {process_id}: broker {leader}, which led {TOPIC}-0")

    def _has_recovered(self) -> bool:
        """Whether all partitions have another leader, and records are acknowledged again."""
        assert self._orders is not None
        with Client(self._cluster.bootstrap) as client:
            partitions = client.cluster([TOPIC]).topic(TOPIC).partitions
        assert self._victim is not None
        is_led = all(one.leader not in (-1, self._victim.number) for one in partitions)
        return is_led and self._orders.pause_after(self._killed_at) > 0

    def _bring_back(self) -> None:
        assert self._victim is not None
        self._screen.step(f"Broker {self._victim.number} comes back")
        began = time.monotonic()
        self._victim.start()
        self._victim.wait_until_serving()
        self._screen.say(f"It serves after {time.monotonic() - began:.1f} s.")
        _wait(self._is_in_sync, "all replicas are in sync")
        self._screen.say(
            f"All replicas of all topics are in sync {time.monotonic() - began:.1f} s after it "
            "was started."
        )

    def _is_in_sync(self) -> bool:
        with Client(self._cluster.bootstrap) as client:
            topics = client.cluster([TOPIC, CLEAN, DEAD]).topics.values()
        return all(len(one.isr) == 3 for topic in topics for one in topic.partitions)

    def _last_run(self, project: Project, address: str) -> None:
        assert self._orders is not None
        self._screen.step("The producer stops, and the pipeline takes in the rest")
        left = self._orders.stop()
        assert left == 0, f"{left} records have no answer"
        seconds = run_once(project, address, tell=self._screen.quote)
        self._screen.say(f"It took {seconds:.1f} s.")

    def _count_and_audit(self, address: str) -> None:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote(address).getOrCreate()
        try:
            self._screen.step("What became of every record")
            self._count(spark)
            self._screen.step("And are the replicas what they should be? (tidelog audit)")
            self._audit(spark)
        finally:
            spark.stop()

    def _count(self, spark: "SparkSession") -> None:
        orders = self._orders
        assert orders is not None
        places = ("partition", "offset")
        ledger = spark.read.csv(str(self._ledger), header=True).selectExpr(
            "cast(partition as int) partition", "cast(offset as bigint) offset"
        )
        bronze = spark.table("bronze").select(*places)
        silver = spark.table("silver").select(*places)
        dead, clean = self._read(spark, DEAD), self._read(spark, CLEAN)
        dead_places = dead.selectExpr(*(_header(name) for name in (PARTITION, OFFSET)))
        clean_places = clean.selectExpr(
            "get_json_object(cast(value as string), '$.partition') p",
            "get_json_object(cast(value as string), '$.offset') o",
        ).selectExpr("cast(p as int) partition", "cast(o as bigint) offset")
        missing = ledger.subtract(bronze).count()
        unaccounted = bronze.subtract(silver).subtract(dead_places).count()
        unpublished = silver.subtract(clean_places).count()
        repeats = dead_places.exceptAll(dead_places.distinct()).count()
        repeats += clean_places.exceptAll(clean_places.distinct()).count()
        counts = {
            "sent by the producer": orders.sent,
            "acknowledged (in the ledger)": orders.acknowledged,
            "in table bronze": bronze.count(),
            "in table silver": silver.count(),
            f"dead letters in {DEAD}": dead_places.distinct().count(),
            f"published to {CLEAN}": clean_places.distinct().count(),
            "repeats in these topics": repeats,
            "acknowledged, but not in bronze": missing,
            "in bronze, but neither in silver nor dead": unaccounted,
            "in silver, but not published": unpublished,
        }
        self._screen.table(("records", "count"), counts.items())
        self._check_sums(spark)
        lost = missing + unaccounted + unpublished
        assert lost == 0, f"{lost} records are missing"
        assert repeats == 0, f"{repeats} records are there again"
        assert bronze.distinct().count() == bronze.count(), "bronze holds each record once"
        assert dead_places.distinct().count() == orders.poison, (
            "each poison record is a dead letter"
        )
        self._screen.notice("None was lost, none is there twice: in no table and in no topic.")

    def _check_sums(self, spark: "SparkSession") -> None:
        sums = "customer", "count(*) orders", "round(sum(amount), 1) amount"
        expected = spark.sql(f"select {', '.join(sums)} from silver group by customer").collect()
        found = spark.sql("select customer, orders, round(amount, 1) from gold").collect()
        assert sorted(found) == sorted(expected), "gold sums up what is in silver"
        self._screen.say(f"View gold sums up just these, for {len(found)} customers.")

    def _read(self, spark: "SparkSession", topic: str) -> "DataFrame":
        options = {"kafka.bootstrap.servers": self._cluster.bootstrap, "subscribe": topic}
        reader = spark.read.format("tidelog").options(**options, includeHeaders="true")
        return reader.option("kafka.isolation.level", "read_committed").load()

    def _audit(self, spark: "SparkSession") -> None:
        from tidelog.cli.audit import read_ledger
        from tidelog.spark.audit import Audit

        with Client(self._cluster.bootstrap) as client:
            subject = of_cluster(client, TOPIC)
            ledger = read_ledger(spark, self._ledger, TOPIC)
            report = Audit(spark, subject, lambda: earliest_offsets(client, subject), ledger).run()
        self._screen.table(
            ("partition", "from", "to", "records", "bytes read", "replicas compared"),
            [
                (one.partition, one.start, one.end, one.records, one.size, ", ".join(one.brokers))
                for one in report.partitions
            ],
        )
        for finding in report.findings:
            self._screen.quote(str(finding))
        assert report.is_clean, report.counts
        assert report.ledger is not None
        self._screen.notice(
            "Clean: all replicas are the same, byte for byte. "
            f"{report.ledger.acknowledged:,} records were acknowledged, and all of them are there."
        )


def _header(name: str) -> str:
    """The number in a header, in a column named after its last word."""
    kind, column = ("int" if name == PARTITION else "bigint"), name.rpartition(".")[2]
    found = f"filter(headers, h -> h.key = '{name}')[0].value"
    return f"cast(cast({found} as string) as {kind}) {column}"


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX:.0f} s: {what}"
        time.sleep(LOOK_S)
