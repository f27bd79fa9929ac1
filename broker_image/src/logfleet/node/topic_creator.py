"""Creates topics because clients request their metadata (auto.create.topics.enable)."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import structlog

from logfleet.controller.changes.topics import name_problem
from logfleet.controller.running.access import ControllerAccess, Origin
from logfleet.metadata.image import INTERNAL_TOPICS
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

log = structlog.get_logger()

CREATING_MAX: Final = 100
"""Topics that this broker creates at the same time; for more, clients have to ask again."""
AGAIN_S: Final = 1.0
"""Pause before the creation of a refused topic is tried again: clients ask for it every 100 ms."""
DEFAULT: Final = -1


class CreateOne(Protocol):
    """Creates a topic through the controller: see `node.handlers.admin.topics.create_one`."""

    async def __call__(
        self,
        access: ControllerAccess,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        *,
        cause: Origin | None = None,
    ) -> Refusal | None: ...


class TopicCreator:
    """Creates topics through the controller while clients retry (Kafka: AutoTopicCreationManager).

    Each counts as a CreateTopics of the newest version, sent by the client that asked first, and is
    refused beyond its quota (KIP-599). Internal topics have partitions and configs of their own;
    their coordinators create them. Call `close` to stop.
    """

    def __init__(self, access: ControllerAccess, create_one: CreateOne) -> None:
        self._access = access
        self._create_one = create_one
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._refused_until_s: dict[str, float] = {}

    def want(self, names: Iterable[str], cause: Origin) -> None:
        """Start to create those that can be created and are not being created yet.

        cause: the request that names them.
        """
        now_s = asyncio.get_running_loop().time()
        self._refused_until_s = {
            name: until_s for name, until_s in self._refused_until_s.items() if until_s > now_s
        }
        for name in names:
            busy = name in self._creating or name in self._refused_until_s
            possible = name not in INTERNAL_TOPICS and name_problem(name) is None
            if possible and not busy and len(self._creating) < CREATING_MAX:
                task = asyncio.get_running_loop().create_task(self._create(name, cause), name=name)
                self._creating[name] = task
                task.add_done_callback(self._done)

    async def close(self) -> None:
        tasks = list(self._creating.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: "asyncio.Task[None]") -> None:
        del self._creating[task.get_name()]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("topic_creation_failed", topic=task.get_name(), exc_info=error)

    async def _create(self, name: str, cause: Origin) -> None:
        refusal = await self._create_one(self._access, name, DEFAULT, DEFAULT, {}, cause=cause)
        if refusal is None:
            log.info("topic_created_on_demand", topic=name)
        elif refusal.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            log.warning(
                "topic_not_created", topic=name, error=refusal.error.name, reason=refusal.message
            )
            self._refused_until_s[name] = asyncio.get_running_loop().time() + AGAIN_S
