"""Names of topics, groups, brokers and keys for completion, from a cache or a broker.

A completion takes half a second at most, and never prints an error.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from logfleet.cli.contexts.address import Address, choose_address
from logfleet.cli.contexts.file import load_contexts, write_privately, xdg_folder
from logfleet.cli.contexts.model import WrongContext

FRESH_S: Final = 60.0
ASK_S_MAX: Final = 0.5
KINDS: Final = ("topics", "groups", "brokers", "topicKeys", "brokerKeys")
Names = Mapping[str, list[str]]
NO_NAMES: Final[Names] = {kind: [] for kind in KINDS}


def names_at(address: Address) -> Names:
    """The names of the cluster there: from a cache that is FRESH_S old at most, else asked for.

    The old names if it does not answer within ASK_S_MAX; none if it never did.
    """
    path = _path(address)
    cached, age_s = _cached(path)
    if cached is not None and age_s < FRESH_S:
        return cached
    found = asked_names(address)
    if found is None:
        return cached or NO_NAMES
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_privately(path, json.dumps(found))
    return found


def _path(address: Address) -> Path:
    folder = xdg_folder("XDG_CACHE_HOME", ".cache", os.environ)
    digest = hashlib.sha256(address.bootstrap.encode()).hexdigest()[:16]
    return folder / f"names-{digest}.json"


def _cached(path: Path) -> tuple[Names | None, float]:
    """The names in the file and their age in seconds; None if there are none that can be read."""
    try:
        age_s = time.time() - path.stat().st_mtime
        found = json.loads(path.read_text())
        return {kind: [str(each) for each in found[kind]] for kind in KINDS}, abs(age_s)
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0.0


def asked_names(address: Address) -> Names | None:
    """The names as a broker reports them now; None if it does not in time."""
    from logfleet.client.cluster import Client  # a cache needs none of it
    from logfleet.client.errors import ClientError

    async def work() -> Names:
        async with asyncio.timeout(ASK_S_MAX), Client(address.bootstrap, timeout_ms=0) as client:
            return await _fetched(client)

    if address.context is not None and address.context.objection() is not None:
        return None
    try:
        return asyncio.run(work())
    except (ClientError, TimeoutError, OSError, ValueError):
        return None


async def _fetched(client: Any) -> Names:
    from logfleet.client.admin import Admin, ResourceType
    from logfleet.client.groups import Groups

    admin = Admin(client)
    topics = await admin.list_topics()
    found = {
        "topics": [each.name for each in topics],
        "groups": [each.group for each in await Groups(client).list()],
        "brokers": [str(each) for each in sorted(client.metadata.nodes)],
    }
    topic_keys = await admin.topic_config(topics[0].name) if topics else {}
    broker_keys = await admin.config(ResourceType.BROKER, found["brokers"][0])
    return {**found, "topicKeys": sorted(topic_keys), "brokerKeys": sorted(broker_keys)}


def _address(ctx: click.Context) -> Address:
    """The address of a command line that is being typed. Raises WrongContext."""
    before, behind = ctx.find_root().params, ctx.params
    return choose_address(
        behind.get("bootstrap_server") or before.get("bootstrap_server"),
        behind.get("context_name") or before.get("context"),
        os.environ,
        load_contexts,
    )


def beginning(ctx: click.Context, kind: str, incomplete: str) -> list[str]:
    """The names of this kind that begin so, of the cluster of the line that is typed."""
    try:
        found = names_at(_address(ctx))[kind]
    except (WrongContext, OSError):
        return []
    # internal names are offered only to somebody who begins to type one
    return [
        each
        for each in found
        if each.startswith(incomplete) and (incomplete or not each.startswith("__"))
    ]


def contexts_beginning(incomplete: str) -> list[str]:
    """The names of contexts that begin so."""
    try:
        found = sorted(load_contexts().all)
    except WrongContext:
        return []
    return [each for each in found if each.startswith(incomplete)]
