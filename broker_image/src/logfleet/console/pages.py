"""The pages: what each one reads, and the command that shows the same."""

import json
import time
from typing import Any, Final

from aiohttp import web

from logfleet.client.admin import Admin
from logfleet.client.brokers.admin_port import MalformedQuestion, NoAnswer, ask
from logfleet.client.errors import ClientError
from logfleet.console.app import Console, View, add_page
from logfleet.console.sample import Sample
from logfleet.console.views.brokers import broker, brokers
from logfleet.console.views.events import events
from logfleet.console.views.groups import group, groups
from logfleet.console.views.overview import health, overview
from logfleet.console.views.topics import settings, topic, topics

MAY_I_S_MAX: Final = 3.0
SETTINGS_S: Final = 20.0
"""A page that repeats itself asks for settings so often."""
SETTINGS_MAX: Final = 200


async def overview_page(console: Console, _request: web.Request) -> View:
    sampler, stuck_s = console.sampler, console.options.stuck_s
    data = overview(sampler.sample, sampler.history, time.time(), stuck_s)
    return View("overview.html", "Overview", data, ("cluster",))


async def health_page(console: Console, _request: web.Request) -> View:
    return View("health.html", "Health", health(console.sampler.sample), ("check",))


async def topics_page(console: Console, request: web.Request) -> View:
    data = topics(console.sampler.sample, console.sampler.history, request.query)
    return View("topics.html", "Topics", data, ("topic", "list"))


async def topic_page(console: Console, request: web.Request) -> View:
    """Settings are asked for when the page is opened; all else is from the sample."""
    name = request.match_info["name"]
    data = topic(console.sampler.sample, console.sampler.history, name, request.query)
    if data is None:
        raise web.HTTPNotFound(text=f"There is no topic {name}.")
    asked_s, rows = console.settings.get(name, (-SETTINGS_S, []))
    failure = None
    if time.monotonic() - asked_s >= SETTINGS_S:
        try:
            rows = settings((await Admin(console.client).topic_config(name)).values())
            if len(console.settings) >= SETTINGS_MAX:
                console.settings.clear()
            console.settings[name] = (time.monotonic(), rows)
        except ClientError as error:
            failure = str(error)
    data |= {"settings": rows, "settings_error": failure}
    return View("topic.html", name, data, ("topic", "describe", name))


async def groups_page(console: Console, request: web.Request) -> View:
    sampler = console.sampler
    stuck_s = console.options.stuck_s
    data = groups(sampler.sample, sampler.history, request.query, time.time(), stuck_s)
    return View("groups.html", "Groups", data, ("group", "list"))


async def group_page(console: Console, request: web.Request) -> View:
    name, sampler = request.match_info["name"], console.sampler
    data = group(sampler.sample, sampler.history, name, time.time(), console.options.stuck_s)
    if data is None:
        raise web.HTTPNotFound(text=f"There is no group {name}.")
    return View("group.html", name, data, ("group", "describe", name))


async def brokers_page(console: Console, _request: web.Request) -> View:
    return View("brokers.html", "Brokers", brokers(console.sampler.sample), ("cluster",))


async def broker_page(console: Console, request: web.Request) -> View:
    """Whether it may stop is asked for now: the answer holds for this moment."""
    broker_id, sample = int(request.match_info["id"]), console.sampler.sample
    data = broker(sample, broker_id)
    if data is None:
        raise web.HTTPNotFound(text=f"There is no broker {broker_id}.")
    data |= {"may_i": await _may_stop(sample, broker_id)}
    return View("broker.html", f"Broker {broker_id}", data, ("may-i", "stop", str(broker_id)))


async def _may_stop(sample: Sample, broker_id: int) -> dict[str, Any] | None:
    """The answer of the first broker that gives one; None if there is none."""
    if sample.cluster is None:
        return None
    for node in sample.cluster.brokers:
        facts = sample.brokers.get(node.id)
        if facts is None or not facts.admin_listener or node.id in sample.cluster.fenced:
            continue
        try:
            reply = await ask(
                sample.cluster.cluster_id,
                node,
                facts.admin_listener,
                "/may-i",
                {"stop": [str(broker_id)]},
                timeout_s=MAY_I_S_MAX,
            )
        except (NoAnswer, MalformedQuestion):
            continue
        answer: dict[str, Any] = json.loads(reply.text)
        return answer
    return None


async def events_page(console: Console, request: web.Request) -> View:
    given = {name: value for name, value in request.query.items() if value}
    command = ["events"]
    for name in ("topic", "broker", "kind", "since"):
        command += [f"--{name}", given[name]] if name in given else []
    data = events(console.sampler.sample, given, time.time())
    return View("events.html", "Events", data, command)


def add_pages(app: web.Application) -> None:
    """All routes for reading."""
    add_page(app, "/", overview_page)
    add_page(app, "/health", health_page)
    add_page(app, "/topics", topics_page)
    add_page(app, "/topics/{name}", topic_page)
    add_page(app, "/groups", groups_page)
    add_page(app, "/groups/{name:.+}", group_page)
    add_page(app, "/brokers", brokers_page)
    add_page(app, "/brokers/{id:[0-9]{1,9}}", broker_page)
    add_page(app, "/events", events_page)
