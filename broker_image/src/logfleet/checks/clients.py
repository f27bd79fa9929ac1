"""Checks of what clients do, by the newest batches of busy partitions and by counters. PURE."""

from collections.abc import Callable, Iterator
from typing import Final

from logfleet.checks.finding import Check, Found, Severity, check, listed
from logfleet.checks.snapshot import Batch, Part, Snapshot

REQUESTS_MIN: Final = 10_000
"""Produce requests since a broker's start; fewer cost little, whatever is in them."""
RECORDS_MIN: Final = 2.0
"""Records in a Produce request, on average."""
COMPRESSIBLE_BYTES: Final = 4_096
"""A smaller batch gains little."""


def writers(fleet: Snapshot, wrong: Callable[[Batch], bool]) -> Iterator[tuple[str, list[str]]]:
    """Topics whose newest batches are so, with the client ids that write most, where known."""
    for topic in fleet.users_topics:
        found = [each for each in topic.partitions if each.batch is not None and wrong(each.batch)]
        if found:
            ids = {each.flow.writer for each in found if each.flow is not None}
            yield topic.name, sorted(name for name in ids if name)


def by_clients(ids: list[str]) -> str:
    return f" (by {listed(ids)})" if ids else ""


@check("LF501", Severity.HINT, Part.BATCHES)
def not_idempotent(fleet: Snapshot) -> Iterator[Found]:
    """Producers without idempotence.

    The newest batch has no producer id. When such a producer sends again after an error, records
    may be doubled or out of order.

    Set `enable.idempotence=true`; Kafka's Java client has it by default, librdkafka has not.
    """
    for topic, ids in writers(fleet, lambda batch: not batch.idempotent):
        sentence = f"written without idempotence{by_clients(ids)}: doubled after errors"
        yield Found(topic, sentence, "set enable.idempotence=true in the producer")


@check("LF502", Severity.HINT, Part.BATCHES, Part.CONFIGS)
def not_compressed(fleet: Snapshot) -> Iterator[Found]:
    """Batches without compression.

    The newest batch is larger than 4 KiB and not compressed. Text is often five times smaller on
    disk and on the network, for producers, replicas and consumers alike.

    Set `compression.type` in the producer. The topic's key of that name makes brokers compress
    instead, which costs them processor time.
    """
    for topic, ids in writers(
        fleet, lambda batch: not batch.compressed and batch.size >= COMPRESSIBLE_BYTES
    ):
        config = fleet.topics[topic].config or {}
        if config.get("compression.type", "producer") == "producer":
            sentence = f"written without compression{by_clients(ids)}"
            yield Found(topic, sentence, "set compression.type=zstd in the producer")


@check("LF503", Severity.HINT, Part.METRICS)
def small_requests(fleet: Snapshot) -> Iterator[Found]:
    """Requests with hardly any records.

    Since its start the broker got fewer than two records with a Produce request. A request costs it
    many times what a record in it costs.

    Let producers wait some milliseconds (`linger.ms=5`), and do not flush after each record.
    """
    for broker in fleet.brokers:
        readings = broker.readings
        requests = readings.produce_requests if readings is not None else None
        if readings is None or readings.records_in is None or not requests:
            continue
        if requests >= REQUESTS_MIN and readings.records_in < RECORDS_MIN * requests:
            sentence = f"{readings.records_in / requests:.1f} records per Produce request"
            yield Found(f"broker {broker.id}", sentence, "set linger.ms=5 in the producers")


CHECKS: Final[tuple[Check, ...]] = (not_idempotent, not_compressed, small_requests)
