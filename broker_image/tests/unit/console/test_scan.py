"""Searches of real partitions: what they read, find and cost, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from logfleet.client.cluster import Client
from logfleet.client.offsets import OffsetSpec, TopicPartition
from logfleet.client.producer import Producer
from logfleet.console import scan as scan_module
from logfleet.console.sample import Sample
from logfleet.console.scan import (
    Scan,
    Scans,
    Start,
    Wanted,
    parse_start,
    parse_wanted,
    price,
    ranges_of,
)
from logfleet.node.broker import Broker
from logfleet.records.where import WhereError

from broker_image.tests.unit.console.samples import NOW_S, fleet
from broker_image.tests.unit.node.broker_rig import config, create_topic


@pytest.mark.parametrize(
    "text, start",
    [
        ("beginning", Start(OffsetSpec.EARLIEST)),
        ("end", Start(OffsetSpec.LATEST)),
        ("17", Start(offset=17)),
        ("-5", Start(last=5)),
        ("@10m", Start(time_ms=1_699_999_400_000)),
        ("@2013-01-01T00:00:00Z", Start(time_ms=1_356_998_400_000)),
    ],
)
def test_a_start(text: str, start: Start) -> None:
    assert parse_start(text, NOW_S) == start


@pytest.mark.parametrize(
    "text",
    ["", "x", "@", "@1y", "2013-01-01T00:00:00Z", "@2013-01-01", "@1960-01-01T00:00:00Z", "9" * 30],
)
def test_a_start_that_makes_no_sense_names_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write beginning"):
        parse_start(text, NOW_S)


def test_an_address_without_a_search_lists_the_last_records_and_a_search_begins_at_the_beginning() -> (
    None
):
    assert (parse_wanted("t", {}, 0).start, parse_wanted("t", {}, 0).is_search) == (
        Start(last=50),
        False,
    )
    wanted = parse_wanted("t", {"contains": "x", "partition": "2", "limit": "99999"}, 0)
    assert (wanted.start, wanted.partition, wanted.limit) == (Start(OffsetSpec.EARLIEST), 2, 1_000)
    for given in ({"partition": "x"}, {"limit": "-1"}, {"budget": "1e9"}):
        with pytest.raises(ValueError, match="is not a number"):
            parse_wanted("t", given, 0)
    with pytest.raises(WhereError, match="column"):
        parse_wanted("t", {"where": "key ="}, 0)


def test_a_price_is_the_share_of_the_partitions_bytes() -> None:
    ranges = {TopicPartition("orders", 0): (60, 110), TopicPartition("orders", 1): (40, 40)}
    assert price(fleet(), ranges, 1024.0) == {"records": 50, "bytes": 2048, "seconds": 2.0}
    assert price(Sample(), ranges, 1024.0) == {"records": 50, "bytes": None, "seconds": None}
    assert price(fleet(sizes={"orders": [-1, 5]}), ranges, 1.0)["bytes"] is None


@asynccontextmanager
async def numbers(path: Path, count: int) -> AsyncIterator[tuple[Client, str]]:
    """A topic of two partitions with the texts of these numbers in turn."""
    async with Broker(config(path)) as broker:
        await create_topic(broker, "t", 2)
        (listener,) = broker.opened.listeners.all
        bootstrap = f"127.0.0.1:{listener.port}"
        async with Client(bootstrap) as client:
            async with Producer(client) as producer:
                for number in range(count):
                    await producer.send("t", b"%d" % number, partition=number % 2)
            yield client, bootstrap


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it does not become so")


async def scanned(client: Client, bootstrap: str, **given: str) -> Scan:
    wanted = parse_wanted("t", given, NOW_S)
    scan = Scan(bootstrap, wanted, await ranges_of(client, wanted))
    await scan.run()
    return scan


@pytest.mark.asyncio
async def test_a_search_reads_each_record_once_and_finds_all(tmp_path: Path) -> None:
    async with numbers(tmp_path, 20_000) as (client, bootstrap):
        scan = await scanned(client, bootstrap, contains="777", limit="1000")
        assert (scan.state, scan.records, scan.total) == ("done", 20_000, 20_000)
        assert sorted(int(hit.record.value or b"") for hit in scan.found) == [
            i for i in range(20_000) if "777" in str(i)
        ]
        scan = await scanned(
            client, bootstrap, where="value >= 15000 and value < 15003", partition="0"
        )
        assert [hit.record.value for hit in scan.found] == [b"15000", b"15002"]
        assert {hit.partition for hit in scan.found} == {0}


@pytest.mark.asyncio
async def test_a_search_ends_at_its_limit_and_at_its_budget(tmp_path: Path) -> None:
    async with numbers(tmp_path, 3_000) as (client, bootstrap):
        scan = await scanned(client, bootstrap, contains="1", limit="7")
        assert (scan.state, len(scan.found)) == ("limit", 7)
        scan = await scanned(client, bootstrap, contains="none", budget="1")
        assert (scan.state, len(scan.found)) == ("budget", 0)
        assert 0 < scan.records < 3_000


@pytest.mark.asyncio
async def test_a_list_begins_and_ends_where_it_should(tmp_path: Path) -> None:
    async with numbers(tmp_path, 100) as (client, bootstrap):
        last = await scanned(client, bootstrap)
        assert sorted((hit.partition, hit.record.offset) for hit in last.found) == [
            (p, o) for p in (0, 1) for o in range(25, 50)
        ]
        one = await scanned(client, bootstrap, **{"from": "-3", "partition": "1"})
        assert [hit.record.value for hit in one.found] == [b"95", b"97", b"99"]
        there = await scanned(client, bootstrap, **{"from": "48"})
        assert sorted(int(hit.record.value or b"") for hit in there.found) == [96, 97, 98, 99]
        beyond = await scanned(client, bootstrap, **{"from": "1000"})
        assert (beyond.found, beyond.state) == ([], "done")
        with pytest.raises(ValueError, match="partition 7 of t is not there"):
            await scanned(client, bootstrap, partition="7")


@pytest.mark.asyncio
async def test_a_search_can_be_stopped_and_one_that_nobody_sees_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with numbers(tmp_path, 100) as (client, bootstrap):
        wanted = parse_wanted("t", {"contains": "x"}, NOW_S)
        endless = {TopicPartition("t", 0): (0, 1_000)}
        scans = Scans()
        name = scans.start(Scan(bootstrap, wanted, endless))
        scan = scans.get(name)
        assert scan is not None
        await until(lambda: scan.records == 50)
        await scans.stop(name)
        assert (scan.state, scan.records) == ("stopped", 50)
        monkeypatch.setattr(scan_module, "UNSEEN_S_MAX", 0.0)
        unseen = Scan(bootstrap, wanted, endless)
        scans.start(unseen)
        await until(lambda: unseen.state != "running")
        assert unseen.state == "stopped"
        assert scans.get("none") is None
        await client.any()


@pytest.mark.asyncio
async def test_there_are_only_so_many_searches_and_an_unreachable_broker_fails_one() -> None:
    scans = Scans()
    wanted = Wanted(
        "t", None, Start(offset=0), parse_wanted("t", {"contains": "x"}, 0).search, 1, 1
    )
    ranges = {TopicPartition("t", 0): (0, 9)}
    names = [scans.start(Scan("127.0.0.1:1", wanted, ranges)) for _ in range(scan_module.SCANS_MAX)]
    with pytest.raises(ValueError, match="searches are running"):
        scans.start(Scan("127.0.0.1:1", wanted, ranges))
    await scans.close()
    assert {scan.state for name in names if (scan := scans.get(name))} == {"stopped"}
    name = scans.start(Scan("127.0.0.1:1", wanted, ranges))
    assert scans.get(name) is not None
    await scans.stop(name)
