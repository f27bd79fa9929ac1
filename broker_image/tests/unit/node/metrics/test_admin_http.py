import json

import aiohttp
import pytest
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.store import KeyValue
from logfleet.node.metrics.admin_http import AdminHttp
from logfleet.telemetry.decisions import Decision, Decisions, Kind

pytestmark = pytest.mark.asyncio


def decisions() -> Decisions:
    times = iter(range(1_000))
    return Decisions(1, lambda: next(times))


async def test_it_answers_health_readiness_and_metrics() -> None:
    async def metrics() -> str:
        return "partitions 7\n"

    reasons: dict[str, str | None] = {"health": None, "ready": "loading 3 of 7 partitions"}
    admin = AdminHttp(
        metrics,
        health=lambda: reasons["health"],
        readiness=lambda: reasons["ready"],
        decisions=decisions(),
        image=ClusterImage,
        traffic=list,
        identity=lambda: "c/1",
    )
    port = await admin.start("127.0.0.1", 0)
    base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
            assert answer.headers["Logfleet-Broker"] == "c/1"
        async with session.get(f"{base}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "loading 3 of 7 partitions\n")
        reasons["ready"] = None
        async with session.get(f"{base}/readyz") as answer:
            assert answer.status == 200
        async with session.get(f"{base}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert await answer.text() == "partitions 7\n"
    await admin.stop()
    await admin.stop()


async def test_a_taken_port_is_an_error() -> None:
    async def metrics() -> str:
        return ""

    first, second = (
        AdminHttp(
            metrics,
            health=lambda: None,
            readiness=lambda: None,
            decisions=decisions(),
            image=ClusterImage,
            traffic=list,
            identity=lambda: "c/1",
        )
        for _ in range(2)
    )
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await second.start("127.0.0.1", port)
    await second.stop()
    await first.stop()


async def test_it_returns_the_requested_decisions() -> None:
    async def metrics() -> str:
        return ""

    recorded = decisions()
    recorded.record(Decision(Kind.ELECTION, "a", topic="t", partition=0))
    recorded.record(Decision(Kind.ELECTION, "b", topic="t", partition=1))
    recorded.record(Decision(Kind.FENCED, "c", broker=2))
    recorded.record(Decision(Kind.STALL, "d", broker=1))
    admin = AdminHttp(
        metrics,
        health=lambda: None,
        readiness=lambda: None,
        decisions=recorded,
        image=ClusterImage,
        traffic=list,
        identity=lambda: "c/1",
    )
    port = await admin.start("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def told(query: str) -> list[str]:
            async with session.get(f"/events?{query}") as answer:
                assert (answer.status, answer.content_type) == (200, "application/jsonl")
                return [json.loads(line)["cause"] for line in (await answer.text()).splitlines()]

        assert await told("") == ["a", "b", "c", "d"]
        assert await told("topic=t&partition=1&broker=&since=") == ["b"]
        assert await told("kind=fenced&kind=stall") == ["c", "d"]
        assert await told("broker=2") == ["c"]
        assert await told("since=99999") == []
        for wrong in ("partition=x", "topics=t"):
            async with session.get(f"/events?{wrong}") as answer:
                assert answer.status == 400
                assert wrong.partition("=")[0] in await answer.text()
    await admin.stop()


async def test_it_reports_whether_brokers_may_go_down_while_it_is_ready() -> None:
    async def metrics() -> str:
        return ""

    builder = ImageBuilder(ClusterImage())
    builder.add(KeyValue(BROKER.key(2), BROKER.encode(BrokerValue("i", (), "b")), 7, 7, 1))
    image, _ = builder.build(7)
    reasons = ["starting"]
    admin = AdminHttp(
        metrics,
        health=lambda: None,
        readiness=lambda: reasons[0] if reasons else None,
        decisions=decisions(),
        image=lambda: image,
        traffic=list,
        identity=lambda: "c/1",
    )
    port = await admin.start("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def told(query: str) -> tuple[int, str]:
            async with session.get(f"/may-i?{query}") as answer:
                return answer.status, await answer.text()

        assert await told("stop=2") == (503, "starting\n")
        reasons.clear()
        for query in ("stop=2", "lose-zone=b"):
            status, text = await told(query)
            assert (status, json.loads(text)["may"], json.loads(text)["brokers"]) == (
                200,
                True,
                [2],
            )
        assert await told("stop=9") == (400, "no broker 9 is registered; there are 2\n")
    await admin.stop()
