import asyncio
import socket

import pytest
from logfleet.client import bootstrap
from logfleet.client.bootstrap import (
    RESOLVE_S_MAX,
    WARN_AFTER_S,
    WARN_EVERY_S,
    Outage,
    parse_bootstrap,
)
from logfleet.client.cluster import Client
from logfleet.client.errors import ConnectionLost, UnknownHost
from logfleet.io.host_names import HOST_NAMES

from broker_image.tests.unit.client.fake_broker import FakeBroker


def test_addresses_are_read_like_kafkas() -> None:
    assert parse_bootstrap("a:1, b ,[::1]:2,[::2],PLAINTEXT://c:3,plaintext://[::3]:4") == [
        ("a", 1),
        ("b", 9092),
        ("::1", 2),
        ("::2", 9092),
        ("c", 3),
        ("::3", 4),
    ]


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:70000", ":9092", "http://a:1", "://a"])
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_bootstrap(text)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL", "ssl"])
def test_a_protocol_that_is_not_built_is_refused_by_name(protocol: str) -> None:
    with pytest.raises(ValueError, match=f"{protocol} is not built yet: write host:port"):
        parse_bootstrap(f"a:1,{protocol}://b:2")


REFUSED = ConnectionLost("cannot connect to a:1: Connection refused")
UNKNOWN = UnknownHost("cannot connect to a:1: Name or service not known")


def test_an_outage_is_warned_of_after_a_while_and_then_now_and_again() -> None:
    warnings: list[str] = []
    outage = Outage("a:1", warnings.append)
    for now_s in range(100, 171):
        outage.failed(REFUSED, float(now_s))
    assert warnings == [
        f"no broker has answered at a:1 for {seconds:.0f} s: {REFUSED}"
        for seconds in (WARN_AFTER_S, WARN_AFTER_S + WARN_EVERY_S, WARN_AFTER_S + 2 * WARN_EVERY_S)
    ]
    outage.is_over()
    outage.failed(REFUSED, 171.0)
    assert len(warnings) == 3, "another outage begins"


def test_a_name_without_an_address_is_given_up_unless_a_broker_ever_answered() -> None:
    outage = Outage("a:1", None)
    outage.failed(UNKNOWN, 0.0)
    outage.failed(REFUSED, RESOLVE_S_MAX)
    with pytest.raises(
        UnknownHost, match=r"no address for 31 s: cannot connect to a:1"
    ) as given_up:
        outage.failed(UNKNOWN, RESOLVE_S_MAX + 1)
    assert not given_up.value.retriable
    outage.is_over()
    for now_s in (100.0, 101.0 + RESOLVE_S_MAX):
        outage.failed(UNKNOWN, now_s)


@pytest.mark.asyncio
async def test_a_call_to_a_wrong_name_ends_long_before_its_time(monkeypatch) -> None:
    """With the name; and a call to a port where nobody listens goes on, with warnings."""

    def fail(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(HOST_NAMES, "_lookup", fail)
    monkeypatch.setattr(bootstrap, "RESOLVE_S_MAX", 0.3)
    monkeypatch.setattr(bootstrap, "WARN_AFTER_S", 0.0)
    warnings: list[str] = []
    began_s = asyncio.get_running_loop().time()
    async with Client("wrong.example:9092", on_outage=warnings.append) as client:
        with pytest.raises(
            UnknownHost, match=r"no address .*wrong\.example:9092.*; correct the name"
        ):
            await client.retrying(client.any)
    assert asyncio.get_running_loop().time() - began_s < 10
    assert warnings
    assert "at wrong.example:9092" in warnings[0]
    async with FakeBroker().running() as gone:
        dead = gone.bootstrap
    async with Client(dead, timeout_ms=1_500, on_outage=warnings.append) as client:
        with pytest.raises(ConnectionLost, match="Connection refused"):
            await client.retrying(client.any)
    assert f"at {dead} " in warnings[-1]
