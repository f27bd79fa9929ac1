"""Writes the statuses of a Cluster's Topics; a refused one does not stop the others. SHELL."""

from collections.abc import Iterable
from typing import Any

from logfleet.client.reconcile import topic_as_shown
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.plan import Reason, SpecRefusal
from logfleet.resources.topic import TopicResource

from logfleet_operator import conditions
from logfleet_operator.documents import ignored_fields, read_topic
from logfleet_operator.events import Events, status_events
from logfleet_operator.kube import Kube, KubeError, Refused
from logfleet_operator.logs import log_ignored_fields
from logfleet_operator.names import Manifest
from logfleet_operator.writes import write_status


class TopicStatuses:
    """The statuses of one pass. refused: receives the Topics whose status the API server refuses.

    instead: uid -> a refusal that goes before any other message of a Topic that waits or is wrong.
    now: RFC 3339, UTC, whole seconds.
    """

    def __init__(self, kube: Kube, events: Events, refused: Refused, now: str) -> None:
        self._kube = kube
        self._events = events
        self._refused = refused
        self.now = now
        self.instead: dict[str, SpecRefusal] = {}

    async def valid(self, documents: Iterable[Manifest]) -> tuple[TopicResource, ...]:
        """The valid Topics; the others get an INVALID status."""
        topics = []
        for document in documents:
            log_ignored_fields("Topic", tuple(ignored_fields(document)))
            try:
                topics.append(topic_as_shown(read_topic(document)))
            except InvalidResourceError as error:
                await self.fail(document, Reason.INVALID, str(error))
        return tuple(topics)

    async def write(self, document: Manifest, status: dict[str, Any]) -> None:
        """Write the status of a Topic, as read, if it changed."""
        if document.get("status", {}) == status:
            return
        try:
            await write_status(self._kube, document, status)
        except KubeError as error:
            self._refused["Topic", document["metadata"]["name"]] = error
            return
        for event in status_events(document.get("status", {}), status):
            if event.type == "Warning":  # the actions have their own Events
                await self._events.write(document, event)

    async def fail(self, document: Manifest, reason: Reason, sentence: str) -> None:
        """Write why a Topic is not Ready."""
        refusal = self.instead.get(document["metadata"]["uid"], SpecRefusal(reason, sentence))
        status = conditions.failed(document, refusal.reason, refusal.message, self.now)
        await self.write(document, status)

    async def postpone(self, documents: Iterable[Manifest], reason: Reason, sentence: str) -> None:
        """Write what Topics wait for; a Topic that is Ready at its present generation stays so."""
        for document in documents:
            if not conditions.ready_as_written(document):
                await self.fail(document, reason, sentence)

    async def fail_all(self, documents: Iterable[Manifest], reason: Reason, sentence: str) -> None:
        for document in documents:
            await self.fail(document, reason, sentence)
