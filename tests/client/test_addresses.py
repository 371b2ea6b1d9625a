"""Bootstrap servers as people write them."""

import pytest

from tidelog.base.errors import BadValue
from tidelog.client.addresses import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("localhost", [Address("localhost", 9092)]),
        (" a:1 , b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
        ("::1", [Address("::1", 9092)]),
    ],
)
def test_hosts_and_ports_are_told_apart(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ",", ":9092", "a:", "a:b", "a:0", "a:65536", "a:-1", "http://a:1", "a:٣", "[::1]x:1"],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadValue, match="HOST:PORT"):
        parse_addresses(text)


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("a:1", "[::1]:2"):
        assert str(parse_addresses(text)[0]) == text
