"""Every setting acts, or says that it does not (O2): nothing is taken and ignored in silence."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import tidelog
from tidelog.base.settings import BROKER, TOPIC, Settings
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


@pytest.mark.parametrize("name", TOPIC)
def test_every_setting_of_a_topic_is_read(name: str) -> None:
    assert name in named_in_code()


@pytest.mark.parametrize("name", BROKER)
def test_every_setting_of_a_broker_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    defaults = {synonym.name for setting in TOPIC.values() for synonym in setting.synonyms}
    if not BROKER[name].no_effect:
        assert name in named_in_code() | defaults
        return
    assert name not in defaults
    assert BROKER[name].no_effect in BROKER[name].doc
    assert BROKER[name].mode == "read-only"


@pytest.mark.parametrize("name", NO_EFFECT)
def test_what_says_that_it_has_no_effect_is_read_by_nobody(name: str) -> None:
    """But for the checks at the start, which are Kafka's."""
    elsewhere = [path for path in broker_files() if path.parent != TABLES]
    assert not [path for path in elsewhere if name in texts(path)]


def test_every_reason_is_a_settings() -> None:
    assert set(NO_EFFECT) <= set(BROKER)
    for start in PROMISES:
        assert [name for name in BROKER if name == start or name.startswith(start)], start


def test_who_sets_something_in_vain_is_told_of_it() -> None:
    settings = Settings.of({"num.io.threads": 16, "num.network.threads": 3, "num.partitions": 2})
    assert ignored(BROKER, settings) == [("num.io.threads", NO_EFFECT["num.io.threads"])]
