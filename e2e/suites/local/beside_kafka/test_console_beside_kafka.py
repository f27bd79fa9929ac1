"""The console opens an Apache Kafka as well: all screens but what only our brokers report."""

import asyncio
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.client.producer import Producer
from logfleet.console.app import CONSOLE, Options
from logfleet.console.serving import make_app

from e2e.compare.brokers import Pair

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(240)]
TOPIC = "console-orders"
PATHS = (
    "/overview.json",
    "/topics.json",
    f"/topics/{TOPIC}.json",
    f"/topics/{TOPIC}/records.json",
    f"/topics/{TOPIC}/records.json?contains=17&go=1",
    "/groups/console-billing.json",
    "/brokers/1.json",
    "/events.json",
)
SAMPLED = ("cluster", "topics", "ends", "begins", "groups", "disks", "brokers")


async def fill(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await Admin(client).create_topic(NewTopic(TOPIC, 2, 1))
        async with Producer(client) as producer:
            for number in range(100):
                await producer.send(TOPIC, b"%d" % number, partition=number % 2)
        await Groups(client).commit("console-billing", {TopicPartition(TOPIC, 0): 20})


async def pages_of(bootstrap: str) -> dict[str, dict[str, object]]:
    """The figures of each page, once all parts were sampled after the records were written."""
    await fill(bootstrap)
    app = make_app(Options(bootstrap=bootstrap))
    async with TestClient(TestServer(app)) as client:
        sampler = app[CONSOLE].sampler
        for _ in range(6_000):
            if all(part in sampler.sample.at_s for part in SAMPLED):
                break
            await asyncio.sleep(0.01)
        assert not sampler.sample.failures, sampler.sample.failures
        found = {}
        for path in PATHS:
            answer = await client.get(path)
            assert answer.status == 200, await answer.text()
            found[path] = json.loads(await answer.text())
        return found


def test_a_kafka_is_shown_with_the_same_figures(beside: Pair) -> None:
    kafka, ours = (
        asyncio.run(pages_of(f"127.0.0.1:{side.port}")) for side in (beside.kafka, beside.ours)
    )
    for path, key in (
        (f"/topics/{TOPIC}.json", "records"),
        (f"/topics/{TOPIC}.json", "partitions"),
        (f"/topics/{TOPIC}.json", "groups"),
        ("/groups/console-billing.json", "lag"),
        ("/groups/console-billing.json", "state"),
    ):
        assert kafka[path][key] == ours[path][key], (path, key)
    for path in PATHS[3:5]:
        rows = [
            [(row["partition"], row["offset"], row["value"]) for row in side[path]["records"]]  # type: ignore[attr-defined]
            for side in (kafka, ours)
        ]
        assert rows[0]
        assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))
    assert kafka["/brokers/1.json"]["may_i"] is None
    assert kafka["/events.json"]["supported"] is False
