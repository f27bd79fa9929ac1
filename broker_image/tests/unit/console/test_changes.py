"""What pages can change with --write, on a real broker, and who is refused."""

import re
from pathlib import Path

import pytest
from logfleet.client.admin import Admin
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.client.producer import Producer

from broker_image.tests.unit.console.test_app import Browser, opened, sampled

pytestmark = pytest.mark.asyncio
KEY = TopicPartition("orders", 0)


async def token_of(browser: Browser, path: str) -> str:
    answer = await browser.get(path)
    text = await answer.text()
    assert answer.status == 200, text
    (token,) = set(re.findall(r'name="token" value="([^"]+)"', text))
    return str(token)


async def test_without_write_no_page_changes_anything(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, console, _):
        await sampled(console, "topics", "groups")
        for path in ("/topics/orders/delete", "/reset"):
            assert (await browser.post(path, data={"token": console.token})).status in {404, 405}
            assert (await browser.get(path)).status == 404
        for path in ("/topics/orders", "/groups/billing"):
            text = await (await browser.get(path)).text()
            assert "elete…" not in text
            assert "Reset" not in text
            assert console.token not in text


async def test_a_topic_is_deleted_after_its_name_was_typed(tmp_path: Path) -> None:
    async with opened(tmp_path, write=True) as (browser, console, client):
        await sampled(console, "topics")
        path = "/topics/orders/delete"
        form = {"token": await token_of(browser, path), "topic": "orders", "confirmed": "order"}
        answer = await browser.post(path, data=form)
        assert (answer.status, "type the topic" in await answer.text()) == (400, True)
        assert await Admin(client).find_topic("orders") is not None
        answer = await browser.post(path, data={**form, "confirmed": "orders"})
        assert answer.url.path == "/topics"
        assert await Admin(client).find_topic("orders") is None
        assert (await browser.get("/topics/none/delete")).status == 404


async def test_offsets_of_a_group_are_previewed_then_committed(tmp_path: Path) -> None:
    async with opened(tmp_path, write=True) as (browser, console, client):
        async with Producer(client) as producer:
            for _ in range(10):
                await producer.send("orders", b"x", partition=0)
        data = await (await browser.get("/reset.json?group=billing&to=-4")).json()
        assert data["moves"] == [{"topic": "orders", "partition": 0, "before": 0, "after": 6}]
        page = await (await browser.get("/reset?group=billing&to=-4")).text()
        assert "logfleet group reset-offsets billing --to -4 --execute" in page
        assert (await Groups(client).committed("billing"))[KEY].offset == 0
        form = {"token": console.token, "group": "billing", "to": "-4"}
        answer = await browser.post("/reset", data=form)
        assert answer.url.path == "/groups/billing"
        assert (await Groups(client).committed("billing"))[KEY].offset == 6


async def test_a_request_of_another_site_or_without_the_token_changes_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, write=True) as (browser, console, client):
        form = {"token": console.token, "topic": "orders", "confirmed": "orders"}
        path = "/topics/orders/delete"
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert (await browser.post(path, data=form, headers=headers)).status == 403
        assert (await browser.post(path, data={**form, "token": "guessed"})).status == 403
        assert await Admin(client).find_topic("orders") is not None
