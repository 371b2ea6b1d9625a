"""`tidelog configs` against a server: in words and in Kafka's flags (O2)."""

import json
from pathlib import Path

import pytest

from support.command_line import run
from support.servers import Server


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


def configs(text: str) -> tuple[int, str, str]:
    return run("configs", *text.split())


def made(name: str) -> str:
    assert run("topics", "create", name)[0] == 0
    return name


def test_words_set_show_and_unset_the_settings_of_a_topic() -> None:
    topic = made("configured")
    assert configs(f"describe topic {topic}") == (
        0,
        f"Nothing was set for topic {topic}. (--all shows every setting that counts)\n",
        "",
    )
    done = (0, f"Completed updating config for topic {topic}.\n", "")
    assert configs(f"set topic {topic} retention.ms=5000 cleanup.policy=compact,delete") == done
    assert configs(f"describe topic {topic}")[1].splitlines() == [
        "CONFIG          VALUE           SOURCE",
        "cleanup.policy  compact,delete  DYNAMIC_TOPIC_CONFIG",
        "retention.ms    5000            DYNAMIC_TOPIC_CONFIG",
    ]
    assert configs(f"unset topic {topic} retention.ms cleanup.policy") == done
    assert configs(f"describe topic {topic}")[1].startswith("Nothing was set")


def test_flags_of_kafka_answer_in_the_layout_of_kafka(tmp_path: Path) -> None:
    topic = made("flagged")
    file = tmp_path / "more.properties"
    file.write_text("segment.ms = 70000\n")
    target = f"--entity-type topics --entity-name {topic}"
    changed = f"--alter {target} --add-config retention.ms=7,cleanup.policy=[compact,delete]"
    assert configs(changed)[0] == 0
    assert configs(f"--alter --topic {topic} --add-config-file {file}")[0] == 0
    assert configs(f"--alter --topic {topic} --delete-config retention.ms")[0] == 0
    status, out, err = configs(f"--describe {target}")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"Dynamic configs for topic {topic} are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  segment.ms=70000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=70000, "
        "DEFAULT_CONFIG:log.roll.hours=168}",
    ]


def test_all_settings_are_shown_with_where_they_come_from() -> None:
    topic = made("all-of-it")
    lines = configs(f"--describe --topic {topic} --all")[1].splitlines()
    assert lines[0] == f"All configs for topic {topic} are:"
    assert any(line.startswith("  max.message.bytes=") for line in lines)
    (shown,) = json.loads(configs(f"describe topic {topic} --all --json")[1])
    assert (shown["type"], shown["name"]) == ("topic", topic)
    by_name = {config["name"]: config for config in shown["configs"]}
    assert by_name["retention.ms"]["source"] == "DEFAULT_CONFIG"
    assert by_name["retention.ms"]["synonyms"]


def test_brokers_have_settings_of_their_own_and_shared_ones() -> None:
    assert configs("set brokers log.cleaner.backoff.ms=14500") == (
        0,
        "Completed updating default config for brokers in the cluster.\n",
        "",
    )
    assert configs("set broker 0 log.cleaner.backoff.ms=14600")[0] == 0
    out = configs("describe brokers")[1]
    assert out.splitlines() == [
        "broker 0",
        "CONFIG                  VALUE  SOURCE",
        "log.cleaner.backoff.ms  14600  DYNAMIC_BROKER_CONFIG",
        "",
        "all brokers",
        "CONFIG                  VALUE  SOURCE",
        "log.cleaner.backoff.ms  14500  DYNAMIC_DEFAULT_BROKER_CONFIG",
    ]
    assert configs("--describe --entity-type brokers --entity-default")[1].startswith(
        "Default configs for brokers in the cluster are:\n  log.cleaner.backoff.ms=14500 "
    )
    assert configs("unset broker 0 log.cleaner.backoff.ms")[0] == 0
    assert configs("--alter --broker-defaults --delete-config log.cleaner.backoff.ms")[0] == 0


def test_every_topic_is_described_where_none_is_named() -> None:
    names = {made("one-of-all"), made("other-of-all")}
    shown = json.loads(configs("describe topics --json")[1])
    assert names <= {topic["name"] for topic in shown}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("describe", "say whose settings: topic NAME, broker ID, or brokers"),
        ("describe topic", "name the topic, or say topics for all"),
        ("describe topic a b", "b: more than one topic cannot be named"),
        ("describe topic none-such", "UNKNOWN_TOPIC_OR_PARTITION: "),
        ("describe broker 8", "BROKER_NOT_AVAILABLE: there is no broker 8 in the cluster"),
        ("describe user x", "user: only topics and brokers have settings here"),
        ("describe topic a --topic b", "topic a: flags have named the topic already"),
        ("set topic", "name the topic whose settings are to change"),
        ("set topic a=b", "a=b: the name of the topic comes before its settings"),
        ("set topic mistaken", "name a setting to change"),
        ("set topic mistaken retention.ms", "set retention.ms: must be NAME=VALUE"),
        ("set topic mistaken retention.ms=x", "INVALID_CONFIG: retention.ms=x: must be a whole"),
        ("set topic mistaken no.such=1", "INVALID_CONFIG: "),
        ("unset topic mistaken retention.mss", "retention.mss: not set for topic mistaken"),
        ("alter --add-config a=b", "say whose settings: --topic NAME, "),
        ("--alter --topic mistaken", "name a setting to change"),
        ("--describe --entity-type users", "--entity-type users: only topics and brokers"),
        ("--describe --zookeeper a:1 --entity-type topics", "--zookeeper: commands talk to "),
        ("describe topics -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: connection refused"),
    ],
)
def test_a_mistake_in_settings_is_one_line(arguments: str, message: str) -> None:
    run("topics", "create", "mistaken", "--if-not-exists")
    status, out, err = configs(arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1
