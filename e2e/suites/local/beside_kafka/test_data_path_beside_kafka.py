"""Fetch, Produce, topic ids and texts beside a running Apache Kafka 4.4.0, with what clients seldom send: the same requests, the same answers."""

from collections.abc import Iterator
from itertools import zip_longest

import pytest

from e2e.compare.brokers import Pair
from e2e.compare.corpora import batches as produce_talks
from e2e.compare.corpora import sessions as fetch_talks
from e2e.compare.corpora import texts as text_talks
from e2e.compare.corpora import topic_ids as topic_id_talks
from e2e.compare.talks.talker import Talker

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def talkers(beside: Pair) -> Iterator[tuple[Talker, Talker]]:
    with beside.brokers.talkers() as made:
        yield made


TALKS = {
    "fetch": fetch_talks.TALKS,
    "produce": produce_talks.TALKS,
    "ids": topic_id_talks.TALKS,
    "text": text_talks.TALKS,
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
    talkers: tuple[Talker, Talker], kind: str, name: str, version: int
) -> None:
    kafka, ours = talkers
    talk, _ = TALKS[kind][name]
    steps = zip_longest(talk(kafka, version), talk(ours, version))
    for number, (theirs, own) in enumerate(steps):
        assert produce_talks.is_same(theirs, own), f"step {number}: Kafka {theirs}, we {own}"
