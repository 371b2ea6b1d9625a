"""What a client says and does when the other side is not there, goes away, or is no broker."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from support.ports import free_ports
from support.scripted_brokers import scripted
from support.servers import Server, new_server
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.apis import Api, choose_version
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.topics import NewTopic, create_topics
from tidelog.wire import codec
from tidelog.wire.header import read_request_header

Talk = Callable[[socket.socket], None]


@contextmanager
def listening(*talks: Talk) -> Iterator[str]:
    """A server that does one thing with its first connection, another with its second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            for talk in talks:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(60)
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(120)


def request_of(connection: socket.socket) -> tuple[int, int, int]:
    """The API, version and correlation id of the next request."""
    size = int.from_bytes(_exactly(connection, 4))
    header, _ = read_request_header(memoryview(bytearray(_exactly(connection, size))))
    return header.api_key, header.version, header.correlation_id


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the client stays"
        data += more
    return data


def tell_versions(connection: socket.socket, version: int, served: dict[int, int]) -> None:
    _, _, correlation_id = request_of(connection)
    kind = codec.entity_type(18, version, "response")
    one = kind.__dataclass_fields__["api_keys"].type.__args__[0]
    keys = tuple(one(api_key=key, min_version=0, max_version=last) for key, last in served.items())
    throttle = {} if version == 0 else {"throttle_time": timedelta(0)}
    answer = kind(error_code=ErrorCode.none, api_keys=keys, **throttle)
    connection.sendall(codec.write_response(18, version, correlation_id, answer))


def refuse_version(connection: socket.socket) -> None:
    """As an old broker does: in version 0, whatever was asked."""
    _, version, correlation_id = request_of(connection)
    assert version == apis.API_VERSIONS.last
    kind = codec.entity_type(18, 0, "response")
    answer = kind(error_code=ErrorCode.unsupported_version, api_keys=())
    connection.sendall(codec.write_response(18, 0, correlation_id, answer))


def test_a_server_that_does_not_run_is_told_at_once() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable) as told, Client(f"127.0.0.1:{port}") as client:
        client.cluster()
    assert str(told.value) == (
        f"cannot reach 127.0.0.1:{port}: connection refused: is the server running? "
        "start it with tidelog server"
    )


def test_a_host_that_does_not_exist_is_told_by_name() -> None:
    with pytest.raises(Unreachable, match=r"cannot reach no-such-host.invalid:9092: .*the host"):
        Client("no-such-host.invalid").cluster()


def test_one_bootstrap_server_of_several_is_enough(shared_server: Server) -> None:
    with Client(f"127.0.0.1:1,{shared_server.address}") as client:
        assert client.cluster().brokers


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\x00\x00\x00\x02ab",
        b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"",
    ],
    ids=["http", "tls", "short", "another answer", "negative", "closed"],
)
def test_what_is_no_broker_is_said_so(answer: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer)

    with (
        listening(talk) as address,
        Client(address) as client,
        pytest.raises(Unreachable, match="is it a Kafka broker's port"),
    ):
        client.cluster()


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    def wait_for_the_end(connection: socket.socket) -> None:
        while connection.recv(1000):
            continue

    with (
        listening(wait_for_the_end) as address,
        Client(address, timeout_ms=200) as client,
        pytest.raises(Unreachable, match="did not answer in time"),
    ):
        client.cluster()


def test_an_old_broker_is_asked_again_in_the_version_it_knows() -> None:
    def talk(connection: socket.socket) -> None:
        refuse_version(connection)
        tell_versions(connection, 0, {3: 2, 18: 0})

    with (
        listening(talk) as address,
        Client(address) as client,
        pytest.raises(KafkaError, match="Metadata is needed in a version of 4 to 13") as told,
    ):
        client.cluster()
    assert told.value.code is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("served", "expected"), [((0, 5), 5), ((2, 3), 3), ((7, 20), 8), ((4, 4), 4)]
)
def test_the_highest_version_that_both_know_is_used(served: tuple[int, int], expected: int) -> None:
    api = Api(name="Some", key=1, first=3, last=8)
    assert choose_version(api, {1: served}) == expected


@pytest.mark.parametrize("served", [(0, 2), (9, 12), None])
def test_no_common_version_is_an_error_that_names_both(served: tuple[int, int] | None) -> None:
    api = Api(name="Some", key=1, first=3, last=8)
    with pytest.raises(KafkaError, match="Some is needed in a version of 3 to 8"):
        choose_version(api, {} if served is None else {1: served})


def test_a_connection_that_was_lost_is_opened_again(tmp_path: Path) -> None:
    """Questions survive a restart of the server; the client notices nothing."""
    server = new_server(tmp_path, {})
    try:
        server.start()
        with Client(server.address) as client:
            assert create_topics(client, [NewTopic(name="kept")]) == {"kept": None}
            server.kill()
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(client.cluster)
                server.start()
                assert list(asked.result(60).topics) == ["kept"]
    finally:
        server.close()


def test_a_broker_that_dies_over_the_first_question_is_followed_by_another() -> None:
    """A task that has just begun asks whoever it reaches first."""
    sent: list[int] = []

    def send(connection: socket.socket, answer: bytes) -> None:
        sent.append(len(answer))
        if len(sent) == 2:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(answer)

    with scripted(lambda *_: {}) as brokers:
        brokers.send = send
        with Client(",".join(brokers.addresses.values())) as client:
            assert client.cluster([]).brokers.keys() == {1, 2}
    assert len(sent) > 2


def test_a_change_whose_answer_was_lost_is_not_made_twice() -> None:
    seen: list[int] = []

    def tell_and_leave(connection: socket.socket) -> None:
        tell_versions(connection, 3, {3: 4, 19: 2})
        answer_metadata(connection, address_parts)
        seen.append(request_of(connection)[0])

    address_parts: list[tuple[str, int]] = []
    with listening(tell_and_leave) as address:
        host, _, port = address.partition(":")
        address_parts.append((host, int(port)))
        with (
            Client(address, timeout_ms=60_000) as client,
            pytest.raises(Unreachable, match="may have been done, or not"),
        ):
            create_topics(client, [NewTopic(name="perhaps")])
    assert seen == [19]


def answer_metadata(connection: socket.socket, address_parts: list[tuple[str, int]]) -> None:
    api_key, version, correlation_id = request_of(connection)
    assert (api_key, version) == (3, 4)
    kind = codec.entity_type(3, 4, "response")
    broker = kind.__dataclass_fields__["brokers"].type.__args__[0]
    host, port = address_parts[0]
    answer = kind(
        throttle_time=timedelta(0),
        brokers=(broker(node_id=5, host=host, port=port, rack=None),),
        cluster_id=None,
        controller_id=5,
        topics=(),
    )
    connection.sendall(codec.write_response(3, 4, correlation_id, answer))
