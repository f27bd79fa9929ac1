import asyncio
import time

import pytest
from logfleet.config.connection_limits import connection_limits
from logfleet.config.topic import BrokerLayers
from logfleet.io.descriptors import NO_LIMIT
from logfleet.net.connection_quotas import ConnectionQuotas
from logfleet.quotas.rates import Windows

pytestmark = pytest.mark.asyncio
HERE, THERE = "127.0.0.1", "127.0.0.2"
WINDOWS = Windows(count=2, length_ms=100)


def limits(**values: object):
    static = {name.replace("_", "."): str(value) for name, value in values.items()}
    return connection_limits(BrokerLayers(static), ["IN", "OUT"])


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def quotas(protected: str | None = None, make_room=lambda _: None, possible_max=NO_LIMIT, **values):
    return ConnectionQuotas(
        limits(**values),
        now_ms,
        protected=protected,
        windows=WINDOWS,
        possible_max=possible_max,
        make_room=make_room,
    )


async def admits(subject: ConnectionQuotas, listener: str) -> bool:
    """Whether one more may come in at once."""
    waiting = asyncio.ensure_future(subject.until_admitted(listener))
    for _ in range(3):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return done


async def test_an_address_that_has_enough_is_refused_until_one_of_its_connections_ends():
    subject = quotas(max_connections_per_ip=2, max_connections_per_ip_overrides=f"{THERE}:0")
    assert subject.enter("OUT", HERE) is None
    assert subject.enter("IN", HERE) is None
    assert subject.enter("OUT", HERE) == 2
    assert subject.enter("OUT", THERE) == 0
    assert subject.total == 2
    subject.leave("IN", HERE)
    assert subject.enter("OUT", HERE) is None


async def test_a_client_waits_while_there_is_no_room():
    subject = quotas(max_connections=1)
    await subject.until_admitted("OUT")
    assert subject.enter("OUT", HERE) is None
    waiting = asyncio.ensure_future(subject.until_admitted("IN"))
    assert not await admits(subject, "OUT")
    assert not waiting.done()
    subject.leave("OUT", HERE)
    await waiting


async def test_a_listener_waits_for_room_of_its_own():
    subject = quotas(listener_name_out_max_connections=1)
    subject.enter("OUT", HERE)
    assert not await admits(subject, "OUT")
    assert await admits(subject, "IN")


async def test_higher_limits_apply_to_waiting_clients():
    subject = quotas(max_connections=1)
    subject.enter("OUT", HERE)
    waiting = asyncio.ensure_future(subject.until_admitted("OUT"))
    assert not await admits(subject, "OUT")
    subject.update(limits(max_connections=2))
    await waiting


async def test_brokers_come_in_at_the_cost_of_others():
    made: list[int] = []
    subject = quotas("IN", made.append, max_connections=1)
    subject.enter("OUT", HERE)
    assert await admits(subject, "IN")
    assert subject.enter("IN", HERE) is None
    assert made == [1]
    assert not await admits(subject, "OUT")


async def test_lower_limits_hold_for_what_is_open():
    made: list[int] = []
    subject = quotas(make_room=made.append)
    for _ in range(5):
        subject.enter("OUT", HERE)
    subject.update(limits(max_connections=2))
    assert made == [3]


@pytest.mark.parametrize(
    "key", ["max_connection_creation_rate", "listener_name_out_max_connection_creation_rate"]
)
async def test_a_rate_is_kept_by_waiting(key):
    """Ten within one window of 100 ms are ten times too many: nine more windows have to pass."""
    subject = quotas(None, **{key: 10})
    for _ in range(9):
        subject._record("OUT")
    began = now_ms()
    waiting = asyncio.ensure_future(subject.until_admitted("OUT"))
    assert await admits(subject, "IN") == (key != "max_connection_creation_rate")
    await waiting
    assert now_ms() - began >= 800


async def test_brokers_do_not_wait_for_the_rate_of_all():
    subject = quotas("IN", max_connection_creation_rate=1)
    for _ in range(100):
        await subject.until_admitted("IN")
    assert not await admits(subject, "OUT")


async def test_there_are_no_more_connections_than_descriptors_and_brokers_come_first():
    made: list[int] = []
    subject = quotas("IN", made.append, possible_max=1)
    assert subject.is_possible("OUT")
    subject.enter("OUT", HERE)
    assert not subject.is_possible("OUT")
    assert subject.is_possible("IN")
    subject.enter("IN", HERE)
    assert made == [1]
    subject.leave("OUT", HERE)
    assert not subject.is_possible("OUT")
    subject.leave("IN", HERE)
    assert subject.is_possible("OUT")
