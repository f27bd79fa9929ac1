"""Pages of records, and a search from its price to its end, of a real broker."""

import re
from pathlib import Path

import pytest
from logfleet.client.cluster import Client
from logfleet.client.producer import Producer

from broker_image.tests.unit.console.test_app import Browser, opened, sampled

pytestmark = pytest.mark.asyncio


async def written(client: Client, count: int) -> None:
    async with Producer(client) as producer:
        for number in range(count):
            await producer.send(
                "orders",
                b'{"n": %d, "card": "c"}' % number,
                key=b"k",
                partition=0,
                headers=[("h", b"<i>")],
            )


async def text_of(browser: Browser, path: str, status: int = 200) -> str:
    answer = await browser.get(path)
    text = await answer.text()
    assert answer.status == status, text
    return text


async def test_the_last_records_are_listed_and_one_opens(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, _, client):
        await written(client, 5)
        data = await (await browser.get("/topics/orders/records.json")).json()
        assert [each["offset"] for each in data["records"]] == [4, 3, 2, 1, 0]
        assert 'href="/topics/orders/records/0/4"' in await text_of(
            browser, "/topics/orders/records"
        )
        page = await text_of(browser, "/topics/orders/records/0/4")
        assert re.search(r"id \d+, epoch 0", page)
        assert "&lt;i&gt;" in page
        record = await (await browser.get("/topics/orders/records/0/4.json")).json()
        assert (record["record"]["value"]["form"], record["batch"]["codec"]) == ("json", "none")
        assert "no record at offset 9" in await text_of(browser, "/topics/orders/records/0/9", 404)
        assert "partition 7 of orders" in await text_of(browser, "/topics/orders/records/7/0", 400)


async def test_a_search_says_its_price_then_runs_and_shows_what_it_found(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, console, client):
        await written(client, 20)
        await sampled(console, "topics", "ends", "begins", "disks")
        query = "contains=1&where=value.n+%3E+9"
        page = await text_of(browser, f"/topics/orders/records?{query}")
        assert re.search(r"Up to <b>[\d.]+ (?:KiB|B)</b>, 20 records, about", page)
        assert "<table" not in page
        answer = await browser.get(f"/topics/orders/records?{query}&go=1")
        assert answer.url.path.startswith("/searches/")
        text = await answer.text()
        for _ in range(1_000):
            if "Done:" in text:
                break
            text = await text_of(browser, str(answer.url.relative()))
        assert "Done: read 20 of 20 records" in text
        assert "found 10." in text
        assert (
            "logfleet consume orders --offset beginning --grep 1 --where &#39;value.n &gt; 9&#39;"
            in text.replace("&#34;", "&#39;")
        )
        found = await (await browser.get(f"/topics/orders/records.json?{query}&go=1")).json()
        assert (found["state"], len(found["records"])) == ("done", 10)
        stopped = await browser.post(str(answer.url.relative()).replace("?", "/stop?"))
        assert stopped.url.path == answer.url.path
        assert "results are gone" in await text_of(browser, "/searches/none", 404)


async def test_another_site_cannot_stop_a_search(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, _, _client):
        answer = await browser.post("/searches/x/stop", headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status == 403


async def test_a_condition_that_makes_no_sense_is_a_sentence(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, _, _client):
        assert "write names, fields" in await text_of(
            browser, "/topics/orders/records?where=f()", 400
        )


async def test_hidden_messages_have_no_pages_and_masked_fields_are_not_shown(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "hidden", hidden=True) as (browser, _, client):
        await written(client, 1)
        for path in (
            "/topics/orders/records",
            "/topics/orders/records/0/0",
            "/topics/orders/records.json",
        ):
            assert (await browser.get(path)).status == 404
        assert "/records" not in await text_of(browser, "/topics/orders")
    async with opened(tmp_path / "masked", masks=("value.card",)) as (browser, _, client):
        await written(client, 1)
        for path in (
            "/topics/orders/records",
            "/topics/orders/records/0/0",
            "/topics/orders/records.json",
        ):
            text = await text_of(browser, path)
            assert ('"c"' in text, "•••" in text) == (False, True)
