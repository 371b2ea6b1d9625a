"""Every setting acts, or says that it does not (O2): nothing is taken and ignored in silence."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import tidelog
from tidelog.base.errors import BadValue
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings import BROKER, TOPIC, Settings, topic_settings
from tidelog.base.settings.no_effect import NO_EFFECT, PROMISES, ignored

SOURCES: Final = Path(tidelog.__file__).parent
TABLES: Final = SOURCES / "base" / "settings"
READERS: Final = ("checks.py", "topic_values.py", "values.py")
"""What in the folder of the tables acts on values, by refusing some or choosing among them."""
CLIENTS: Final = ("cli", "client", "spark", "trials")
"""Folders that name settings of a broker that is elsewhere."""


@cache
def named_in_code() -> frozenset[str]:
    """All text in the code of a broker, without what only explains it."""
    return frozenset(text for path in broker_files() for text in texts(path))


def broker_files() -> Iterator[Path]:
    for path in SOURCES.rglob("*.py"):
        is_table = path.parent == TABLES and path.name not in READERS
        if not is_table and path.relative_to(SOURCES).parts[0] not in CLIENTS:
            yield path


@cache
def texts(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def attributes_read() -> frozenset[str]:
    """In the code of a broker, by whatever object."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in broker_files())
    return frozenset(
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@pytest.mark.parametrize("name", TOPIC)
def test_every_setting_of_a_topic_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    setting = TOPIC[name]
    if not setting.no_effect:
        assert name in named_in_code()
        return
    assert setting.no_effect in setting.doc
    assert not [synonym for synonym in setting.synonyms if not BROKER[synonym.name].no_effect]


@pytest.mark.parametrize("name", [field.name for field in fields(LogSettings)])
def test_what_a_log_is_told_of_its_settings_is_read_by_somebody(name: str) -> None:
    """To copy a value out of the table is not to act on it."""
    assert name in attributes_read()


@pytest.mark.parametrize("name", BROKER)
def test_every_setting_of_a_broker_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    acting = [setting for setting in TOPIC.values() if not setting.no_effect]
    defaults = {synonym.name for setting in acting for synonym in setting.synonyms}
    if not BROKER[name].no_effect:
        assert name in named_in_code() | defaults
        return
    assert name not in defaults
    assert BROKER[name].no_effect in BROKER[name].doc
    assert BROKER[name].mode == "read-only"


@pytest.mark.parametrize("name", [*NO_EFFECT, "preallocate"])
def test_what_says_that_it_has_no_effect_is_read_by_nobody(name: str) -> None:
    """But for the checks at the start, which are Kafka's."""
    elsewhere = [path for path in broker_files() if path.parent != TABLES]
    assert not [path for path in elsewhere if name in texts(path)]


def test_every_reason_is_a_settings() -> None:
    assert set(NO_EFFECT) <= set(BROKER)
    for start in PROMISES:
        assert [name for name in (*BROKER, *TOPIC) if name.startswith(start)], start


def test_a_topic_that_would_get_no_room_in_advance_is_refused() -> None:
    """O2: at no start is anybody told of it. A file for a broker is taken."""
    broker = Settings.of({"log.preallocate": True})
    assert ignored(BROKER, broker) == [("log.preallocate", NO_EFFECT["log.preallocate"])]
    assert topic_settings(broker, {"preallocate": "false"}).source("preallocate") == (
        "DYNAMIC_TOPIC_CONFIG"
    )
    with pytest.raises(BadValue, match="preallocate=true: segments take room as they grow"):
        topic_settings(broker, {"preallocate": "true"})


def test_who_sets_something_in_vain_is_told_of_it() -> None:
    settings = Settings.of({"num.io.threads": 16, "num.network.threads": 3, "num.partitions": 2})
    assert ignored(BROKER, settings) == [("num.io.threads", NO_EFFECT["num.io.threads"])]
