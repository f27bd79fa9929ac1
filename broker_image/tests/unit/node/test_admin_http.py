import aiohttp
import pytest
from logfleet.node.admin_http import AdminHttp
from prometheus_client import CollectorRegistry, Gauge

pytestmark = pytest.mark.asyncio


async def test_it_answers_health_readiness_and_metrics() -> None:
    registry = CollectorRegistry()
    Gauge("partitions", "how many", registry=registry).set(7)
    reasons: dict[str, str | None] = {"health": None, "ready": "loading 3 of 7 partitions"}
    admin = AdminHttp(
        registry, health=lambda: reasons["health"], readiness=lambda: reasons["ready"]
    )
    port = await admin.start("127.0.0.1", 0)
    base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"{base}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "loading 3 of 7 partitions\n")
        reasons["ready"] = None
        async with session.get(f"{base}/readyz") as answer:
            assert answer.status == 200
        async with session.get(f"{base}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert "partitions 7.0" in await answer.text()
    await admin.stop()
    await admin.stop()


async def test_a_taken_port_is_an_error() -> None:
    first = AdminHttp(CollectorRegistry(), health=lambda: None, readiness=lambda: None)
    second = AdminHttp(CollectorRegistry(), health=lambda: None, readiness=lambda: None)
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await second.start("127.0.0.1", port)
    await second.stop()
    await first.stop()
