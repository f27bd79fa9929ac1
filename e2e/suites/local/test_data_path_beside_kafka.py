"""Fetch, Produce and topic ids beside a running Apache Kafka 4.4.0, with what clients seldom send: the same requests, the same answers."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from e2e.harness import fetch_talks, produce_talks, topic_id_talks
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker
from e2e.harness.talks import Talker

pytestmark = [pytest.mark.xdist_group("data-path-beside-kafka"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka") as broker:
        talker = Talker(broker.port, Path(broker.config["log.dirs"]))
        yield talker
        talker.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talker]:
    broker = Broker(tmp_path_factory.mktemp("ours"), {})
    broker.start()
    talker = Talker(broker.port, broker.data)
    yield talker
    talker.close()
    broker.close()


TALKS = {
    "fetch": fetch_talks.TALKS,
    "produce": produce_talks.TALKS,
    "ids": topic_id_talks.TALKS,
}


@pytest.mark.parametrize(
    "kind, name, version",
    [
        (kind, name, version)
        for kind, talks in TALKS.items()
        for name, (_, versions) in talks.items()
        for version in versions
    ],
)
def test_the_same_is_answered_as_kafka_answers_it(
    kafka: Talker, ours: Talker, kind: str, name: str, version: int
) -> None:
    talk, _ = TALKS[kind][name]
    steps = zip_longest(talk(kafka, version), talk(ours, version))
    for number, (theirs, own) in enumerate(steps):
        assert produce_talks.is_same(theirs, own), f"step {number}: Kafka {theirs}, we {own}"
