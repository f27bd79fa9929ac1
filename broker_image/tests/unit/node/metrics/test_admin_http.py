import aiohttp
import pytest
from logfleet.node.metrics.admin_http import AdminHttp

pytestmark = pytest.mark.asyncio


async def test_it_answers_health_readiness_and_metrics() -> None:
    async def metrics() -> str:
        return "partitions 7\n"

    reasons: dict[str, str | None] = {"health": None, "ready": "loading 3 of 7 partitions"}
    admin = AdminHttp(metrics, health=lambda: reasons["health"], readiness=lambda: reasons["ready"])
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
            assert await answer.text() == "partitions 7\n"
    await admin.stop()
    await admin.stop()


async def test_a_taken_port_is_an_error() -> None:
    async def metrics() -> str:
        return ""

    first = AdminHttp(metrics, health=lambda: None, readiness=lambda: None)
    second = AdminHttp(metrics, health=lambda: None, readiness=lambda: None)
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await second.start("127.0.0.1", port)
    await second.stop()
    await first.stop()
