from time import monotonic

import pytest
from logfleet.auth.principal import ANONYMOUS
from logfleet.config.broker import broker_config
from logfleet.metadata.image import Quotas
from logfleet.metadata.kinds.quotas import QuotaEntity
from logfleet.quotas import client_quotas
from logfleet.quotas.client_quotas import IDLE_MS_MAX, ClientQuotas, monotonic_ms, quotas_of
from logfleet.quotas.rates import Windows

USER = ANONYMOUS.name


class Clock:
    now = 5_000_000

    def __call__(self) -> int:
        return self.now


CLIENTS: QuotaEntity = (("client-id", None),)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> ClientQuotas:
    return ClientQuotas(Windows(), Windows(3, 1_000), clock)


def limit(quotas: ClientQuotas, entity: QuotaEntity = CLIENTS, **values: float) -> None:
    quotas.update({entity: Quotas(values)})


def test_who_has_no_quota_is_not_measured(quotas: ClientQuotas) -> None:
    quotas.update({})
    assert [quotas.limit_requests] == [False]
    assert quotas.produce.charge(USER, "a", 1e12) == 0
    assert quotas.fetch.burst(USER, "a") is None
    assert quotas.mutation.of_request(USER, "a", strict=True) is None
    assert quotas.connection.charge("10.0.0.1") == 0
    limit(quotas, (("client-id", "b"),), producer_byte_rate=1.0)
    assert [quotas.limit_requests] == [True]
    assert quotas.produce.charge(USER, "a", 1e12) == quotas.produce.charge(USER, None, 1e12) == 0
    assert len(quotas.produce.meters) == 0


def test_each_client_has_a_rate_of_its_own(quotas: ClientQuotas, clock: Clock) -> None:
    limit(quotas, producer_byte_rate=100.0)
    assert quotas.produce.charge(USER, "a", 1_000) == 0
    assert quotas.produce.charge(USER, "a", 1_000) == 10_000
    assert quotas.produce.charge(USER, "b", 500) == 0
    clock.now += 11_000
    assert quotas.produce.charge(USER, "a", 1_000) == 0


def test_the_limit_of_a_user_is_not_that_of_another(quotas: ClientQuotas) -> None:
    limit(quotas, (("user", "alice"),), producer_byte_rate=100.0)
    assert quotas.produce.charge("alice", "a", 2_000) == 10_000
    assert quotas.produce.charge(USER, "a", 1e12) == 0


def test_clients_of_a_user_share_its_rate(quotas: ClientQuotas) -> None:
    limit(quotas, (("user", "ANONYMOUS"),), producer_byte_rate=100.0)
    assert quotas.produce.charge(USER, "a", 1_000) == 0
    assert quotas.produce.charge(USER, "b", 1_000) == 10_000


def test_what_was_measured_counts_against_a_new_quota(quotas: ClientQuotas) -> None:
    limit(quotas, producer_byte_rate=1_000.0)
    assert quotas.produce.charge(USER, "a", 10_000) == 0
    limit(quotas, producer_byte_rate=500.0)
    assert quotas.produce.charge(USER, "a", 0) == 10_000


def test_what_is_taken_back_does_not_count(quotas: ClientQuotas) -> None:
    limit(quotas, consumer_byte_rate=100.0)
    assert quotas.fetch.charge(USER, "a", 5_000) == 40_000
    quotas.fetch.refund(USER, "a", 5_000)
    assert quotas.fetch.charge(USER, "a", 1_000) == 0


def test_a_fetch_gives_no_more_than_ever_fits(quotas: ClientQuotas) -> None:
    """Ten full windows: more would be throttled in any case."""
    limit(quotas, consumer_byte_rate=100.0)
    assert quotas.fetch.burst(USER, "a") == 1_000


def test_time_is_taken_back_in_pieces_of_a_window(quotas: ClientQuotas) -> None:
    limit(quotas, request_percentage=1.0)
    assert quotas.request.charge(USER, "a", 5_000.0) == 1_000


def test_a_strict_budget_refuses_once_it_is_used_up(quotas: ClientQuotas, clock: Clock) -> None:
    limit(quotas, controller_mutation_rate=2.0)
    budget = quotas.mutation.of_request(USER, "a", strict=True)
    assert budget is not None
    assert budget.take(10)  # a bucket of 6: what remains is -4
    assert budget.throttle_ms() == 0
    assert not budget.take(1)
    assert budget.throttle_ms() == 2_000
    clock.now += 2_000
    later = quotas.mutation.of_request(USER, "a", strict=True)
    assert later is not None
    assert later.take(1)


def test_a_lenient_budget_only_makes_wait(quotas: ClientQuotas) -> None:
    limit(quotas, controller_mutation_rate=2.0)
    budget = quotas.mutation.of_request(USER, "a", strict=False)
    assert budget is not None
    assert budget.take(6)
    assert budget.throttle_ms() == 0
    assert budget.take(4)
    assert budget.throttle_ms() == 2_000


def test_too_many_connections_of_an_address_are_turned_away(
    quotas: ClientQuotas, clock: Clock
) -> None:
    limit(quotas, (("ip", "10.0.0.1"),), connection_creation_rate=1.0)
    assert not quotas.limit_requests
    assert [quotas.connection.charge("10.0.0.1") for _ in range(10)] == [0] * 10
    assert quotas.connection.charge("10.0.0.1") == 1_000
    assert quotas.connection.charge("::ffff:10.0.0.1") == 1_000
    assert quotas.connection.charge("10.0.0.2") == 0
    assert quotas.connection.throttled == 2
    clock.now += 11_000
    assert quotas.connection.charge("10.0.0.1") == 0


def test_an_address_may_have_more_than_the_others(quotas: ClientQuotas) -> None:
    values: dict[QuotaEntity, Quotas] = {
        (("ip", None),): Quotas({"connection_creation_rate": 1.0}),
        (("ip", "10.0.0.1"),): Quotas({"connection_creation_rate": 1_000.0}),
    }
    quotas.update(values)
    assert not any(quotas.connection.charge("10.0.0.1") for _ in range(50))
    assert any(quotas.connection.charge("a socket") for _ in range(50))


def test_clients_that_went_are_forgotten(
    quotas: ClientQuotas, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(quotas, producer_byte_rate=1.0)
    for name in ("a", "b", "c"):
        quotas.produce.charge(USER, name, 1)
    clock.now += IDLE_MS_MAX
    quotas.produce.charge(USER, "a", 1)
    clock.now += 1
    quotas.produce.charge(USER, "d", 1)
    assert len(quotas.produce.meters) == 2  # a, d
    monkeypatch.setattr(client_quotas, "METERS_MAX", 3)
    quotas.produce.charge(USER, "d", 1_000)
    for number in range(10):
        quotas.produce.charge(USER, f"n{number}", 1)
        assert quotas.produce.charge(USER, "d", 0) > 0, "in use, so it is still known"
    assert len(quotas.produce.meters) == 3


def test_the_clock_goes_on() -> None:
    earliest = int(monotonic() * 1_000)
    assert earliest <= monotonic_ms() <= monotonic() * 1_000


def test_windows_are_as_configured() -> None:
    config = broker_config({"quota.window.num": "3", "controller.quota.window.size.seconds": "2"})
    quotas = quotas_of(config)
    limit(quotas, consumer_byte_rate=10.0, controller_mutation_rate=1.0)
    assert quotas.fetch.burst(USER, "a") == 20
    budget = quotas.mutation.of_request(USER, "a", strict=True)
    assert budget is not None
    assert budget.take(23)
    assert not budget.take(1)
    assert 0 < budget.throttle_ms() <= 1_000
