"""The two changes that pages can make, with --write: offsets of a group, and the end of a topic.

Each is a page that shows the command line and what would change, and a POST that does it. The POST
needs the token of this process, which only those pages have.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from logfleet.client.admin import Admin
from logfleet.client.errors import KafkaError
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.console.app import Console, View, add_page, page
from logfleet.console.scan import offsets_at_start, parse_start
from logfleet.wire.errors import ErrorCode

PLACE: Final = "beginning"


async def delete_page(console: Console, request: web.Request) -> View:
    """What would be deleted with the topic."""
    name, sample = request.match_info["name"], console.sampler.sample
    if name not in sample.topics:
        raise web.HTTPNotFound(text=f"There is no topic {name}.")
    data = {
        "topic": name,
        "partitions": len(sample.topics[name].partitions),
        "records": sample.records(name),
        "bytes": sample.size(name),
        "groups": [
            group.name
            for group in sample.groups.values()
            if any(key.topic == name for key in group.committed)
        ],
    }
    return View("delete.html", f"Delete {name}", data, ("topic", "delete", name, "--yes"), live=0)


async def delete(console: Console, form: Mapping[str, Any]) -> str:
    """Delete the topic whose name was typed again; returns the page to go to. ValueError."""
    name = str(form.get("topic", ""))
    if form.get("confirmed") != name:
        raise ValueError(f"type the topic's name, {name}, to delete it")
    await Admin(console.client).delete_topic(name)
    return "/topics"


async def reset_page(console: Console, request: web.Request) -> View:
    """The offsets that would be committed, and those that are."""
    name, place = request.query.get("group", ""), request.query.get("to") or PLACE
    moves = await _moves(console, name, place)
    rows = [
        {"topic": key.topic, "partition": key.partition, "before": before, "after": after}
        for key, (before, after) in sorted(moves.items())
    ]
    command = ("group", "reset-offsets", name, "--to", place, "--execute")
    data = {"group": name, "to": place, "moves": rows}
    return View("reset.html", f"Reset offsets of {name}", data, command, live=0)


async def reset(console: Console, form: Mapping[str, Any]) -> str:
    """Commit the offsets of that place; returns the page to go to. Raises ClientError."""
    name = str(form.get("group", ""))
    moves = await _moves(console, name, str(form.get("to", "")))
    offsets = {key: after for key, (_, after) in moves.items()}
    await Groups(console.client).commit(name, offsets)
    return f"/groups/{quote(name, safe='')}"


async def _moves(console: Console, group: str, place: str) -> dict[TopicPartition, tuple[int, int]]:
    """Committed offset and new one, of each partition that has one. Raises ClientError."""
    start, groups = parse_start(place, time.time()), Groups(console.client)
    if (await groups.describe(group)).members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, subject=f"group {group}")
    committed = await groups.committed(group)
    found = await offsets_at_start(console.client, list(committed), start)
    return {key: (committed[key].offset, begin) for key, (begin, _) in found.items()}


def _post(
    change: Callable[[Console, Mapping[str, Any]], Awaitable[str]],
) -> Callable[[Console, web.Request], Awaitable[View]]:
    async def make(console: Console, request: web.Request) -> View:
        form = await request.post()
        if not hmac.compare_digest(str(form.get("token", "")), console.token):
            raise web.HTTPForbidden(text="The form is not of this console: open its page again.")
        at = await change(console, form)
        console.sampler.refresh()
        raise web.HTTPSeeOther(console.options.base_path + at)

    return make


def add_pages(app: web.Application) -> None:
    """The routes of all changes; without them they do not exist."""
    for path, make, change in (
        ("/topics/{name}/delete", delete_page, delete),
        ("/reset", reset_page, reset),
    ):
        add_page(app, path, make)
        app.router.add_post(path, page(_post(change)))
