"""The pages of a console for a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from logfleet.client.cluster import Client
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.client.producer import Producer
from logfleet.console.app import CONSOLE, Console, Options
from logfleet.console.serving import make_app
from logfleet.node.broker import Broker

from broker_image.tests.unit.node.broker_rig import config, create_topic

pytestmark = pytest.mark.asyncio
Browser = TestClient[web.Request, web.Application]
PAGES = [
    "/",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/billing",
    "/brokers",
    "/brokers/1",
    "/events",
    "/health",
]


@asynccontextmanager
async def opened(path: Path, **given: object) -> AsyncIterator[tuple[Browser, Console, Client]]:
    """A console, and a client of the same broker, which has a topic and a group."""
    async with Broker(config(path)) as broker:
        await create_topic(broker, "orders", 2)
        (listener,) = broker.opened.listeners.all
        bootstrap = f"127.0.0.1:{listener.port}"
        app = make_app(Options(bootstrap=bootstrap, **given))  # type: ignore[arg-type]
        inner = app if CONSOLE in app else app._subapps[0]
        async with Client(bootstrap) as client, TestClient(TestServer(app)) as browser:
            await Groups(client).commit("billing", {TopicPartition("orders", 0): 0})
            yield browser, inner[CONSOLE], client


async def sampled(console: Console, *parts: str) -> None:
    """Wait until these parts were taken after now."""
    sampler, before = console.sampler, dict(console.sampler.sample.at_s)
    sampler.refresh()
    for _ in range(4_000):
        at_s = sampler.sample.at_s
        if missing := [part for part in parts if at_s.get(part, 0) <= before.get(part, 0)]:
            await asyncio.sleep(0.01)
        else:
            return
    pytest.fail(f"not sampled: {missing}, {sampler.sample.failures}")


async def test_every_page_is_there_as_html_and_as_json_under_a_strict_policy(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (browser, console, _):
        await sampled(console, *console.sampler._parts)
        for path in PAGES:
            answer = await browser.get(path)
            text = await answer.text()
            assert answer.status == 200, text
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert "Sampled <time" in text
            assert "<html lang" in text
            answer = await browser.get(("/overview" if path == "/" else path) + ".json")
            assert answer.status == 200
            assert isinstance(await answer.json(), dict)
        assert console.sampler.sample.failures == {}
        assert (await browser.get("/brokers/1")).status == 200
        may_i = (await (await browser.get("/brokers/1.json")).json())["may_i"]
        assert (may_i["may"], may_i["forbidden_count"]) == (False, 52)
        assert (await (await browser.get("/events.json")).json())["supported"]


async def test_pages_show_what_is_written_and_how_far_a_group_is_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, console, client):
        async with Producer(client) as producer:
            for number in range(20):
                await producer.send("orders", b"%d" % number, partition=0)
        await sampled(console, "topics", "ends", "begins", "groups", "disks")
        topic = await (await browser.get("/topics/orders.json")).json()
        assert topic["records"] == 20
        assert topic["groups"] == ["billing"]
        assert topic["bytes"] > 0
        assert [row["end"] for row in topic["partition_rows"]["rows"]] == [20, 0]
        group = await (await browser.get("/groups/billing.json")).json()
        assert group["lag"] == 20


async def test_what_is_not_there_is_not_found_and_a_wrong_selection_is_a_sentence(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (browser, _, _client):
        for path in ("/topics/none", "/groups/none", "/brokers/9"):
            answer = await browser.get(path)
            assert (answer.status, "There is no" in await answer.text()) == (404, True)
        answer = await browser.get("/events.json?since=yesterday")
        assert answer.status == 400
        assert "write 10m" in (await answer.json())["error"]


async def test_names_are_text_never_markup(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, console, client):
        await Groups(client).commit("<script>x</script>", {TopicPartition("orders", 0): 0})
        await sampled(console, "groups")
        text = await (await browser.get("/groups")).text()
        assert "&lt;script&gt;x" in text
        assert "<script>x" not in text
        answer = await browser.get("/groups/%3Cscript%3Ex%3C%2Fscript%3E")
        assert (answer.status, "<script>x" in await answer.text()) == (200, False)


async def test_another_name_of_this_machine_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, _, _client):
        answer = await browser.get("/", headers={"Host": "evil.example:8080"})
        assert answer.status == 421
        assert (await browser.get("/", headers={"Host": "localhost:8080"})).status == 200
    async with opened(tmp_path / "open", local=False) as (browser, _, _client):
        assert (await browser.get("/", headers={"Host": "console.example"})).status == 200


async def test_behind_a_proxy_all_links_begin_with_its_path(tmp_path: Path) -> None:
    async with opened(tmp_path, base_path="/x") as (browser, _, _client):
        text = await (await browser.get("/x/topics")).text()
        assert 'href="/x/topics"' in text
        assert 'src="/x/static/app.js' in text
        assert 'href="/topics' not in text
        assert (await browser.get("/x/static/app.css")).status == 200
        assert (await browser.get("/topics")).status == 404


async def test_a_broker_that_does_not_answer_is_a_sentence_and_the_last_sample_stays(
    tmp_path: Path,
) -> None:
    app = make_app(Options(bootstrap="127.0.0.1:1"))
    async with TestClient(TestServer(app)) as browser:
        for _ in range(4_000):
            if "cluster" in app[CONSOLE].sampler.sample.failures:
                break
            await asyncio.sleep(0.01)
        data = await (await browser.get("/overview.json")).json()
        assert data["state"]["level"] == "error"
        assert "No broker answers" in data["state"]["sentence"]
