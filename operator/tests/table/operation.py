"""The operator's worker against a World, with a clock that only moves when told to."""

import asyncio
import copy
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import yaml
from logfleet_operator import names
from logfleet_operator.clusters.cluster_reconciler import ClusterReconciler
from logfleet_operator.clusters.pods import config_of
from logfleet_operator.events import Events
from logfleet_operator.handlers import Feed
from logfleet_operator.ownership import Ownership
from logfleet_operator.rebalances.rebalance_reconciler import RebalanceReconciler
from logfleet_operator.settings import Settings
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Worker

from .world import Manifest, World

EXAMPLES = Path(__file__).resolve().parents[3] / "crds/examples"
SETTINGS = Settings(broker_image="logfleet/broker:1")
ROUND_S = 16.0
# Nothing in the operator waits longer than half a minute.
QUIET_ROUNDS = 3
ROUNDS_MAX = 80
POOL = {"name": "main", "replicas": 3, "storage": {"size": "2Gi"}}


def example(name: str) -> Manifest:
    document: Manifest = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return document


def cluster(**spec: Any) -> Manifest:
    document = copy.deepcopy(example("cluster"))
    document["spec"].update(spec)
    return document


def topic(name: str = "flights", **spec: Any) -> Manifest:
    document = copy.deepcopy(example("topic"))
    document["metadata"]["name"] = name
    document["spec"].update(spec)
    return document


def rebalance(name: str = "even-out", **spec: Any) -> Manifest:
    document = copy.deepcopy(example("rebalance"))
    document["metadata"]["name"] = name
    document["spec"].update(spec)
    return document


class AtOnce:
    """As much of a loop as a `Feed` needs: what another thread hands over happens at once."""

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)


class Operation:
    """One life of the operator's process. ahead: of the clock of the world and its nodes."""

    def __init__(
        self, world: World, settings: Settings = SETTINGS, *, ahead: timedelta = timedelta()
    ) -> None:
        self.world = world
        events = Events(world, settings.identity, now=world.now)
        self.ownership = Ownership(world, settings.release, events, monotonic=world.clock)
        whose = self.ownership
        self.clusters = ClusterReconciler(
            world,
            settings,
            world,
            world.etcd,
            world.replicas,
            ownership=whose,
            now=lambda: world.now() + ahead,
        )
        self.topics = TopicReconciler(
            world, world, settings, ownership=whose, monotonic=world.clock, now=world.now
        )
        self.rebalances = RebalanceReconciler(
            world,
            settings,
            world.replicas,
            ownership=whose,
            monotonic=world.clock,
            now=world.now,
        )
        self.worker = Worker(
            world, self.clusters, self.topics, self.rebalances, settings, clock=world.clock
        )
        self.feed = Feed(cast("asyncio.AbstractEventLoop", AtOnce()), self.worker, self.topics)

    def delete_topic(self, name: str) -> None:
        """The person deletes a Topic, and the watch tells of it."""
        last = self.world.one("Topic", name)
        self.world.remove("Topic", name)
        self.feed.topic("DELETED", last)

    async def round(self) -> None:
        """Look at everything, do all that is due, let the world react, let time pass."""
        await self.worker.resync()
        while (key := self.worker.queue.take(self.world.now_s)) is not None:
            await self.worker.work_on(key)
        self.world.step()
        self.world.now_s += ROUND_S

    async def until_at_rest(self) -> None:
        """Go on until nothing has changed for longer than the operator ever waits."""
        quiet = 0
        for _ in range(ROUNDS_MAX):
            before = self.world.changes
            await self.round()
            quiet = quiet + 1 if self.world.changes == before else 0
            if quiet == QUIET_ROUNDS:
                return
        raise AssertionError("the operator does not come to rest")


def pool(**fields: Any) -> dict[str, Any]:
    return {"pools": [{**POOL, **fields}]}


async def at_rest(**spec: Any) -> tuple[World, Operation]:
    world = World()
    world.put(cluster(**spec))
    operation = Operation(world)
    await operation.until_at_rest()
    return world, operation


def properties_of(world: World, kind: str = "StatefulSet", name: str = "fleet-main-a") -> str:
    """What the brokers of this set, or this pod, start with."""
    live = world.one(kind, name)["spec"]
    spec = live["template"]["spec"] if kind == "StatefulSet" else live
    config = world.one("ConfigMap", config_of(spec))
    return str(config["data"]["server.properties"])


def why(world: World) -> str:
    return str(world.one("Cluster", "fleet")["status"]["why"])


async def fleet(*topics: dict[str, Any]) -> tuple[World, Operation]:
    world = World()
    world.put(cluster())
    for document in topics:
        world.put(document)
    operation = Operation(world)
    await operation.until_at_rest()
    return world, operation


def ledger(world: World) -> dict[str, dict[str, Any]]:
    lines = {}
    for (kind, _, name), live in world.objects.items():
        if kind == "ConfigMap" and name.startswith("fleet-topics-"):
            for key, text in live.get("data", {}).items():
                lines[key] = json.loads(text)
    return lines


def blocked(world: World) -> str:
    """What the Cluster says of deletions that wait; "" if none do."""
    for condition in world.one("Cluster", "fleet")["status"]["conditions"]:
        if condition["type"] == "TopicDeletionBlocked" and condition["status"] == "True":
            return str(condition["message"])
    return ""


def token_in(sentence: str) -> str:
    """The word that confirms them."""
    return sentence.partition(f"{names.CONFIRM_ANNOTATION}=")[2].split()[0]


def told(world: World, kind: str) -> list[tuple[str, str, str]]:
    """(type, reason, note) of the Events about objects of this kind, in order."""
    return [
        (live["type"], live["reason"], live["note"])
        for (found, _, _), live in world.objects.items()
        if found == "Event" and live["regarding"]["kind"] == kind
    ]
