import socket

import pytest
from logfleet.node.tools.loopback_ports import LoopbackPorts, is_taken


def listening(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_reserved_port_goes_to_nobody_but_to_who_names_it() -> None:
    with LoopbackPorts() as ports, LoopbackPorts() as others:
        port = ports.reserve()
        assert port not in {others.reserve() for _ in range(500)}
        assert not is_taken(port)
        with listening(port):
            assert is_taken(port)
            with socket.create_connection(("127.0.0.1", port)):
                pass
        with listening(port):
            assert is_taken(port), "again, as after a restart"


def test_a_released_port_is_no_ones() -> None:
    ports = LoopbackPorts()
    port = ports.reserve()
    ports.release()
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", port))
        assert is_taken(port) is False or plain.getsockname()[1] == port


def test_all_addresses_count_as_loopback_too() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        assert is_taken(server.getsockname()[1])


@pytest.mark.parametrize("count", [200])
def test_reserved_ports_differ(count: int) -> None:
    with LoopbackPorts() as ports:
        assert len({ports.reserve() for _ in range(count)}) == count


def test_a_port_of_ones_choice_is_reserved_or_refused() -> None:
    with LoopbackPorts() as ports:
        port = ports.reserve()
        ports.release()
        assert ports.reserve(port) == port
        with pytest.raises(OSError, match="in use"):
            ports.reserve(port)
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            with pytest.raises(OSError, match="in use"):
                ports.reserve(server.getsockname()[1])
