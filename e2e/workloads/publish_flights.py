"""Publishes the flights through an unmodified Kafka client, inside the cluster or outside.

usage: python -m e2e.workloads.publish_flights BOOTSTRAP TOPIC {all,even,odd}

Rows go out in scheduled order; even and odd count from 0. Prints how many records were acknowledged, as JSON, and
fails if one was not.
"""

import json
import sys
import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from e2e.harness import flights

FIRST_AND_STEP = {"all": (0, 1), "even": (0, 2), "odd": (1, 2)}
FLUSH_WITHIN_S = 120


class PublishError(Exception):
    """Records that were not acknowledged."""


def publish(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
    """Send every (key, value) idempotently and give their number once all are acknowledged."""
    failed: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
    )
    sent = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=on_delivery)
            except BufferError:  # the client's queue is full: wait for acknowledgements
                producer.poll(0.1)
            else:
                break
        sent += 1
        producer.poll(0)
    producer.flush(FLUSH_WITHIN_S)
    missing = len(failed) + len(producer)
    if missing:
        raise PublishError(f"{missing} of {sent} records were not acknowledged: {failed[:1]}")
    return sent


def main(bootstrap: str, topic: str, rows: str) -> None:
    first, step = FIRST_AND_STEP[rows]
    table = flights.table().iloc[first::step]
    started = time.monotonic()
    sent = publish(bootstrap, topic, flights.records(table))
    print(json.dumps({"acknowledged": sent, "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
