"""Pages of records: a list, a search with its price before it begins, one record with its batch."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from logfleet.console.app import CONSOLE, Console, View, add_page
from logfleet.console.decode import row
from logfleet.console.scan import (
    Scan,
    Start,
    Wanted,
    parse_wanted,
    price,
    ranges_of,
)
from logfleet.records.batch import read_codec
from logfleet.records.search import Search

LIST_S_MAX: Final = 5.0
BUDGET_STEP: Final = 4


async def records_page(console: Console, request: web.Request) -> View:
    """A list at once; a search after its price was shown, with `go`. As JSON the whole search."""
    name, given = request.match_info["name"], request.query
    wanted = parse_wanted(name, given, time.time())
    ranges = await ranges_of(console.client, wanted)
    scan = Scan(console.options.bootstrap, wanted, ranges)
    if not wanted.is_search:
        async with asyncio.timeout(LIST_S_MAX):
            await scan.run()
    elif given.get("go") and request.path.endswith(".json"):
        await scan.run()
    elif given.get("go"):
        raise _to_search(console, console.scans.start(scan), _without_go(given))
    data = {
        "partitions": len((await console.client.topic(name)).partitions),
        "price": price(console.sampler.sample, ranges, console.scans.bytes_per_s),
        "searches": wanted.is_search,
        **_found(console, scan),
    }
    data["records"].sort(key=lambda each: (-each["timestamp"], each["partition"], -each["offset"]))
    return View("records.html", f"Records of {name}", data, _command(wanted, given), live=0)


async def search_page(console: Console, request: web.Request) -> View:
    """What a search has found so far; one whose page nobody opens any more is stopped."""
    scan = console.scans.get(request.match_info["id"])
    if scan is None:
        raise web.HTTPNotFound(text="That search is over, and its results are gone: search again.")
    data = {
        "id": request.match_info["id"],
        "again": _without_go(request.query),
        "more": urlencode({**request.query, "budget": scan.wanted.budget * BUDGET_STEP, "go": 1}),
        **_found(console, scan),
    }
    live = 0.5 if scan.state == "running" else 0
    command = _command(scan.wanted, request.query)
    return View("search.html", f"Search in {scan.wanted.topic}", data, command, live=live)


async def stop_search(request: web.Request) -> web.Response:
    """Stop a search, and show what it has found."""
    console, name = request.app[CONSOLE], request.match_info["id"]
    await console.scans.stop(name)
    raise _to_search(console, name, request.query_string)


async def record_page(console: Console, request: web.Request) -> View:
    """One record, whole, with its headers and its batch."""
    name = request.match_info["name"]
    partition, offset = int(request.match_info["partition"]), int(request.match_info["offset"])
    wanted = Wanted(name, partition, Start(offset=offset), Search(), 1, 0)
    scan = Scan(console.options.bootstrap, wanted, await ranges_of(console.client, wanted))
    async with asyncio.timeout(LIST_S_MAX):
        await scan.run()
    hit = next((hit for hit in scan.found if hit.record.offset == offset), None)
    if hit is None:
        raise web.HTTPNotFound(text=f"{name}-{partition} has no record at offset {offset}.")
    header = hit.header
    batch = {
        "base_offset": header.base_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": read_codec(header).name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "transactional": header.is_transactional,
        "leader_epoch": header.leader_epoch,
        "crc": f"{header.crc:08x}",
    }
    shown = row(partition, hit.record, console.options.masks)
    data = {"topic": name, "record": shown, "batch": batch}
    command = ("consume", name, "-p", str(partition), "--offset", str(offset), "-n", "1")
    return View("record.html", f"{name}-{partition} at {offset}", data, command, live=0)


def _found(console: Console, scan: Scan) -> dict[str, Any]:
    masks = console.options.masks
    return {
        "topic": scan.wanted.topic,
        "state": scan.state,
        "error": scan.error,
        "limit": scan.wanted.limit,
        "budget": scan.wanted.budget,
        "read": scan.records,
        "total": scan.total,
        "bytes": scan.bytes,
        "seconds": scan.seconds,
        "records": [row(hit.partition, hit.record, masks) for hit in scan.found],
    }


def _to_search(console: Console, name: str, query: str) -> web.HTTPSeeOther:
    return web.HTTPSeeOther(f"{console.options.base_path}/searches/{name}?{query}")


def _without_go(given: Mapping[str, str]) -> str:
    return urlencode({name: value for name, value in given.items() if name != "go" and value})


def _command(wanted: Wanted, given: Mapping[str, str]) -> list[str]:
    """`logfleet consume` with the same records; it has no limit of bytes."""
    command = ["consume", wanted.topic, "--offset"]
    command.append(given.get("from") or ("beginning" if wanted.is_search else "-50"))
    for option, name in (
        ("-p", "partition"),
        ("--grep", "contains"),
        ("--key-grep", "key"),
        ("--where", "where"),
    ):
        command += [option, given[name]] if given.get(name) else []
    return [*command, "-n", str(wanted.limit), "--exit-at-end"]


def add_pages(app: web.Application) -> None:
    """The routes of all pages that show records."""
    add_page(app, "/topics/{name}/records", records_page)
    record = "/topics/{name}/records/{partition:[0-9]{1,9}}/{offset:[0-9]{1,18}}"
    add_page(app, record, record_page)
    add_page(app, "/searches/{id}", search_page)
    app.router.add_post("/searches/{id}/stop", stop_search)
