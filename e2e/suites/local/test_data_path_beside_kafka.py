"""Fetch and Produce beside a running Apache Kafka 4.4.0, with what clients seldom send: the same requests, the same answers."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from e2e.harness import fetch_talks, produce_talks
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


@pytest.mark.parametrize(
    "name, version",
    [(name, version) for name, (_, versions) in fetch_talks.TALKS.items() for version in versions],
)
def test_fetches_are_answered_as_kafka_answers_them(
    kafka: Talker, ours: Talker, name: str, version: int
) -> None:
    talk, _ = fetch_talks.TALKS[name]
    steps = zip_longest(talk(kafka, version), talk(ours, version))
    for number, (theirs, own) in enumerate(steps):
        assert own == theirs, f"step {number}"


@pytest.mark.parametrize(
    "name, version",
    [
        (name, version)
        for name, (_, versions) in produce_talks.TALKS.items()
        for version in versions
    ],
)
def test_produces_are_answered_as_kafka_answers_them(
    kafka: Talker, ours: Talker, name: str, version: int
) -> None:
    talk, _ = produce_talks.TALKS[name]
    steps = zip_longest(talk(kafka, version), talk(ours, version))
    for number, (theirs, own) in enumerate(steps):
        assert produce_talks.is_same(theirs, own), f"step {number}: Kafka {theirs}, we {own}"
