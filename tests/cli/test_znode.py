"""`tidelog znode` as a command: what it shows of a server's tree, running or not (T4)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.coordinated import RealEmbedded, RealZooKeeper
from support.ports import free_ports
from support.zookeepers import new_connect
from tidelog.base.coordination import Create, SetData
from tidelog.cli.defaults import DEFAULT_FOLDER
from tidelog.cli.main import app

STATE = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
LOOKS_MIN = 40
SNAPSHOTS_MIN = 3
"""Or rather the journals that go with them."""


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["znode", *arguments], prog_name="tidelog")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealEmbedded]:
    """What a running server has of coordination, in `tmp_path`."""
    place = RealEmbedded(tmp_path, journal_bytes_max=3_000)
    place.write(
        Create(path="/brokers"),
        Create(path="/brokers/ids"),
        Create(path="/brokers/ids/0", data=b'{"port":9092}', ephemeral=True),
        Create(path="/brokers/topics"),
        Create(path="/brokers/topics/orders", data="{größe}".encode()),
        Create(path="/brokers/topics/orders/state", data=STATE),
        Create(path="/raw", data=b"\xff\x00\x1b[2J"),
    )
    yield place
    place.release()


def stop(server: RealEmbedded) -> None:
    server.coordination.close()
    ended: list[bool] = []
    server.coordination.after_all(lambda: ended.append(True))
    server.wait(lambda: bool(ended))


def test_get_prints_the_data_of_a_node_while_the_server_runs(
    server: RealEmbedded, tmp_path: Path
) -> None:
    """T4: the state of a partition as Kafka writes it."""
    status, out, err = run("get", "/brokers/topics/orders/state", "--dir", str(tmp_path))
    assert (status, out, err) == (0, STATE.decode() + "\n", "")
    server.write(SetData(path="/raw", data=b"later"))
    assert run("get", "/raw", "--dir", str(tmp_path))[1] == "later\n"


def test_a_stopped_server_is_shown_as_it_stopped(server: RealEmbedded, tmp_path: Path) -> None:
    stop(server)
    assert run("ls", "/brokers", "--dir", str(tmp_path)) == (0, "ids\ntopics\n", "")
    assert run("ls", "/brokers/ids", "--dir", str(tmp_path)) == (0, "", "")


def test_looking_changes_nothing(server: RealEmbedded, tmp_path: Path) -> None:
    stop(server)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run("ls", "-R", "--dir", str(tmp_path))
    run("get", "/", "--dir", str(tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.usefixtures("server")
def test_ls_shows_all_that_is_below_a_node_as_a_tree(tmp_path: Path) -> None:
    status, out, err = run("ls", "-R", "--dir", str(tmp_path))
    assert (status, err) == (0, "")
    assert out == (
        "/\n"
        "├── brokers\n"
        "│   ├── ids\n"
        "│   │   └── 0 (ephemeral)\n"
        "│   └── topics\n"
        "│       └── orders\n"
        "│           └── state\n"
        "└── raw\n"
    )


@pytest.mark.usefixtures("server")
def test_json_is_for_scripts(tmp_path: Path) -> None:
    folder = ("--json", "--dir", str(tmp_path))
    found = json.loads(run("get", "/brokers/topics/orders", *folder)[1])
    assert (found["path"], found["data"]) == ("/brokers/topics/orders", "{größe}")
    assert (found["version"], found["children_count"]) == (0, 1)
    assert json.loads(run("get", "/raw", *folder)[1])["data_base64"] == "/wAbWzJK"
    assert json.loads(run("ls", "/brokers", *folder)[1]) == ["ids", "topics"]
    below = json.loads(run("ls", "--recursive", "/brokers/ids", *folder)[1])
    assert below == ["/brokers/ids", "/brokers/ids/0"]


@pytest.mark.usefixtures("server")
def test_the_stat_can_be_shown_too(tmp_path: Path) -> None:
    out = run("get", "/brokers/ids/0", "-s", "--dir", str(tmp_path))[1]
    assert out.startswith('{"port":9092}\ncreated_zxid = 0x100000001\n')
    assert "ephemeral_owner = 0x100000000\n" in out


@pytest.mark.usefixtures("server")
def test_data_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    assert run("get", "/raw", "--dir", str(tmp_path))[1] == "\ufffd\\x00\\x1b[2J\n"


@pytest.mark.usefixtures("server")
def test_a_missing_node_is_answered_with_what_is_there(tmp_path: Path) -> None:
    status, out, err = run("get", "/brokers/topic/orders", "--dir", str(tmp_path))
    assert (status, out) == (1, "")
    assert err == (
        "tidelog: /brokers/topic/orders: there is no such node; below /brokers there is ids, "
        "topics\n"
    )
    assert "must begin with /" in run("ls", "brokers", "--dir", str(tmp_path))[2]


def test_a_folder_without_a_tree_is_answered_with_what_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run("ls")
    assert (status, out) == (1, "")
    assert err == (
        f"tidelog: {tmp_path / DEFAULT_FOLDER}/znodes: there is no tree of znodes; name the data "
        "folder of a server with --dir, its file with --config, or a cluster's ZooKeeper with "
        "--zookeeper\n"
    )
    assert list(tmp_path.iterdir()) == [], "looking makes no folder"


def test_the_folder_may_come_from_the_settings_of_the_server(
    server: RealEmbedded, tmp_path: Path
) -> None:
    stop(server)
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=3\nlog.dirs={tmp_path},/other\n")
    assert run("ls", "--config", str(config)) == (0, "brokers\nraw\n", "")
    both = run("ls", "--config", str(config), "--dir", str(tmp_path))
    assert both[0] == 1
    assert "--dir, --config and --zookeeper each name the tree" in both[2]


@pytest.fixture
def connect() -> Iterator[str]:
    """A real ZooKeeper, with a few nodes below a chroot."""
    connect = new_connect()
    place = RealZooKeeper(connect)
    place.write(
        Create(path="/brokers"),
        Create(path="/brokers/ids"),
        Create(path="/brokers/ids/0", data=b'{"port":9092}', ephemeral=True),
        Create(path="/brokers/topics"),
        Create(path="/brokers/topics/orders", data=STATE),
    )
    yield connect
    place.release()


def test_the_nodes_of_a_cluster_are_shown_from_its_zookeeper(connect: str, tmp_path: Path) -> None:
    """T4: any node, embedded or ZooKeeper."""
    there = ("--zookeeper", connect)
    assert run("get", "/brokers/topics/orders", *there) == (0, STATE.decode() + "\n", "")
    assert run("ls", "/brokers", *there) == (0, "ids\ntopics\n", "")
    assert run("ls", "/brokers", "-R", *there)[1].splitlines() == [
        "/brokers",
        "├── ids",
        "│   └── 0 (ephemeral)",
        "└── topics",
        "    └── orders",
    ]
    assert json.loads(run("ls", "-R", "--json", *there)[1])[:3] == [
        "/",
        "/brokers",
        "/brokers/ids",
    ]
    seen = json.loads(run("get", "/brokers/ids/0", "--json", *there)[1])
    assert seen["data"] == '{"port":9092}'
    assert seen["ephemeral_owner"] != 0
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=3\nzookeeper.connect={connect}\n")
    assert run("ls", "/brokers", "--config", str(config)) == (0, "ids\ntopics\n", "")


def test_what_is_not_in_zookeeper_is_named_and_not_made(connect: str) -> None:
    status, _, err = run("get", "/brokers/nowhere/at/all", "--zookeeper", connect)
    assert status == 1
    assert err == (
        "tidelog: /brokers/nowhere/at/all: there is no such node; below /brokers there is "
        "ids, topics\n"
    )
    other = f"{connect}-other"
    status, _, err = run("ls", "--zookeeper", other)
    assert (status, err) == (
        1,
        "tidelog: /: there is no such node; below / there is nothing\n",
    )
    assert run("ls", "--zookeeper", other)[0] == 1, "looking makes no chroot"


@pytest.mark.parametrize("connect", ["::1", "[::1:2181", "[a]:2181", "zoo1:99999", "a:1,:2/b"])
def test_what_cannot_be_a_zookeeper_is_refused_with_what_would_be_right(
    connect: str, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=3\nzookeeper.connect={connect}\n")
    for where in (("--zookeeper", connect), ("--config", str(config))):
        status, _, err = run("ls", *where)
        assert status == 1
        assert f"zookeeper.connect={connect.partition('/')[0]}" in err
        assert "must be host:port separated by commas" in err


def test_a_zookeeper_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.world.real.zookeeper_reading._ANSWER_SECONDS_MAX", 0.5)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    status, _, err = run("ls", "--zookeeper", nobody)
    assert status == 1
    assert err.startswith(f"tidelog: {nobody}: no ZooKeeper answered there")


def test_a_damaged_tree_is_refused_by_the_file_that_is_damaged(
    server: RealEmbedded, tmp_path: Path
) -> None:
    stop(server)
    snapshot = tmp_path / "znodes" / "snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    status, _, err = run("ls", "--dir", str(tmp_path))
    assert status == 1
    assert err.startswith(f"tidelog: {snapshot}: is damaged at byte ")


def test_a_server_that_makes_snapshots_can_be_looked_at_any_time(
    server: RealEmbedded, tmp_path: Path
) -> None:
    """Its files change their names under the reader, who goes on until they have."""
    seen: list[int] = []
    names: set[frozenset[Path]] = set()

    def look() -> None:
        while len(seen) < LOOKS_MIN or len(names) < SNAPSHOTS_MIN:
            seen.append(run("get", "/raw", "--dir", str(tmp_path))[0])
            names.add(frozenset((tmp_path / "znodes").glob("journal-*")))

    number = 0
    with ThreadPoolExecutor(1) as pool:
        looks = pool.submit(look)
        while not looks.done():
            server.write(SetData(path="/raw", data=b"%d " % number * 40))
            number += 1
    looks.result()
    assert set(seen) == {0}
