"""Each finding of clients: in a fleet that has it, and not in a healthy one."""

from logfleet.checks import clients
from logfleet.checks.snapshot import Batch, Readings
from logfleet.telemetry.flows import Flow

from broker_image.tests.unit.checks.fleets import broker, fleet, found, partition, topic

GOOD = Batch(idempotent=True, compressed=True, records=100, size=50_000)
BAD = Batch(idempotent=False, compressed=False, records=100, size=50_000)


def flow(writer: str | None) -> Flow:
    return Flow("orders", 0, 1_000.0, 0.0, writer)


def test_a_producer_without_idempotence_is_found_by_its_client_id() -> None:
    written = fleet(
        topic("orders", partition(0, batch=BAD, flow=flow("app")), partition(1, batch=GOOD))
    )
    assert found(clients.not_idempotent, written) == [
        ("orders", "written without idempotence (by app): doubled after errors")
    ]


def test_without_traffic_the_topic_is_named_alone() -> None:
    silent = fleet(
        topic("orders", partition(0, batch=BAD, flow=flow(None)), partition(1, batch=BAD))
    )
    assert found(clients.not_idempotent, silent) == [
        ("orders", "written without idempotence: doubled after errors")
    ]
    assert found(clients.not_idempotent, fleet(topic("orders", partition(0, batch=GOOD)))) == []


def test_internal_topics_are_not_judged() -> None:
    offsets = topic("__consumer_offsets", partition(batch=BAD), internal=True)
    assert found(clients.not_idempotent, fleet(offsets)) == []


def test_large_batches_without_compression_are_found() -> None:
    large = fleet(topic("orders", partition(batch=BAD)))
    assert found(clients.not_compressed, large) == [("orders", "written without compression")]
    small = Batch(idempotent=True, compressed=False, records=1, size=200)
    assert found(clients.not_compressed, fleet(topic("orders", partition(batch=small)))) == []


def test_a_topic_that_brokers_store_without_compression_is_meant_so() -> None:
    meant = topic("orders", partition(batch=BAD), config={"compression.type": "uncompressed"})
    assert found(clients.not_compressed, fleet(meant)) == []


def test_requests_with_hardly_any_records_are_found() -> None:
    busy = Readings(records_in=15_000.0, produce_requests=10_000.0)
    assert found(clients.small_requests, fleet(brokers=(broker(1, readings=busy),))) == [
        ("broker 1", "1.5 records per Produce request")
    ]
    for quiet in (
        None,
        Readings(),
        Readings(records_in=1.0),
        Readings(records_in=10.0, produce_requests=10.0),
    ):
        assert found(clients.small_requests, fleet(brokers=(broker(1, readings=quiet),))) == []
