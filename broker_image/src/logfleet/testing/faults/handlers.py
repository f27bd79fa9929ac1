"""Handlers that let faults act on the requests of a broker.

`with_faults` puts each handler into one that asks the book of faults first. A repeated Produce or
follower's Fetch is served without its handler (`node.handlers.producing.repeats`), so connections
have none while a fault of those APIs is armed. Followers' fetches and what the test itself asks are
hit by no fault.
"""

import os
from functools import partial
from typing import Any, Final, cast

import msgspec
import structlog

from logfleet.net.connection import CloseConnection
from logfleet.net.file_sender import FileSlice
from logfleet.net.peer import Peer
from logfleet.node.dispatch import Handler, Handlers, RequestContext
from logfleet.node.handlers.fetch_rows import TOPIC_IDS_SINCE, replica_id
from logfleet.node.handlers.producing.refused_batches import record_refused
from logfleet.node.handlers.rooms import Rooms
from logfleet.testing.faults.answers import Result, changed, delayed, lose
from logfleet.testing.faults.errors import add, failed, refuse, refused_alone, replace, take_out
from logfleet.testing.faults.layouts import LAYOUTS
from logfleet.testing.faults.naming import named_by, topic_of
from logfleet.testing.faults.rules import ArmedFault, Fault, FaultBook, Named
from logfleet.wire.apis import api_of
from logfleet.wire.messages import AddPartitionsToTxnRequest, FetchRequest, FetchResponse

log = structlog.get_logger(__name__)

TESTING_CLIENT_ID: Final = "logfleet-testing"
"""The client id of what the test itself asks."""
REPEATED: Final = ("Produce", "Fetch")
"""APIs of which some requests are served without their handlers."""


def with_faults(handlers: Handlers[Rooms], book: FaultBook) -> Handlers[Rooms]:
    """The same handlers; the faults of `book` act on their requests."""
    return {
        request: FaultyHandler(api_of(request).name, handler, book)
        for request, handler in handlers.items()
    }


class FaultyHandler:
    """The handler of one API, with the faults of `book`."""

    def __init__(self, api: str, handler: Handler[Rooms], book: FaultBook) -> None:
        self._api = api
        self._handler = handler
        self._book = book

    def __call__(self, rooms: Rooms, request: Any, context: RequestContext) -> Result:
        if not self._book.concerns(self._api) or _is_own(request, context):
            return self._handler(rooms, request, context)
        try:
            return _Call(self._api, self._handler, rooms, request, context).serve(self._book)
        finally:
            if self._api in REPEATED:
                forget_repeats(context.peer)


def forget_repeats(peer: Peer) -> None:
    """Have each request of this connection decoded, until the image changes."""
    peer.repeats_left = peer.repeat_end = 0


def _is_own(request: Any, context: RequestContext) -> bool:
    """Whether another broker asks, or the test itself."""
    if isinstance(request, FetchRequest) and replica_id(request, context.api_version) >= 0:
        return True
    if isinstance(request, AddPartitionsToTxnRequest) and request.transactions:
        return True  # clients use the versions before (KIP-890)
    return context.client_id == TESTING_CLIENT_ID


class _Call:
    """One request that a fault may hit."""

    def __init__(
        self,
        api: str,
        handler: Handler[Rooms],
        rooms: Rooms,
        request: Any,
        context: RequestContext,
    ) -> None:
        self._api = api
        self._handler = handler
        self._rooms = rooms
        self._request = request
        self._context = context

    def serve(self, book: FaultBook) -> Result:
        """Serve the request, as the first fault that is due for it wants."""
        armed = book.choose(self._api, self._named())
        if armed is None:
            return self._served()
        fault = armed.fault
        if fault.tear is not None:
            return changed(self._served(), partial(self._torn, armed))
        log.info("fault_hit", api=self._api, fault=armed.number, hits=armed.hits)
        if fault.drop:
            raise CloseConnection(f"fault {armed.number} drops the request")
        if fault.error is not None:
            return self._refused(fault)
        if fault.lose_answer:
            return changed(self._served(), partial(lose, armed.number))
        assert fault.delay_s is not None, "the last of the actions"
        return delayed(self._served(), self._context.peer, fault.delay_s)

    def _served(self) -> Result:
        return self._handler(self._rooms, self._request, self._context)

    def _named(self) -> Named:
        context = self._context
        named = named_by(self._api, self._request, context.client_id, self._name_of)
        if self._api != "Fetch":
            return named
        rows = tuple((self._name(topic), index) for topic, index in self._fetched())
        return msgspec.structs.replace(named, rows=rows)

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self._rooms.metadata.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _name(self, topic: bytes | str) -> str | None:
        return topic if isinstance(topic, str) else self._name_of(topic)

    def _fetched(self) -> list[tuple[Any, int]]:
        """The partitions of a fetch, which its session may have: topic id or name, and index."""
        request, by_id = self._request, self._context.api_version >= TOPIC_IDS_SINCE
        keys = {
            (topic.topic_id if by_id else topic.topic, row.partition): None
            for topic in request.topics
            for row in topic.partitions
        }
        session = self._rooms.sessions.fetches.find(request.session_id)
        return [*keys, *(key for key in (session.partitions if session else ()) if key not in keys)]

    def _refused(self, fault: Fault) -> Result:
        """Answer with the error, for what is hit; the rest is carried out."""
        layout = LAYOUTS.get(self._api)
        if layout is None:
            return refuse(self._api, self._request, self._context.api_version, fault.code)
        if self._api == "Fetch":
            self._request.max_wait_ms = 0
            return changed(self._served(), partial(self._failed_fetch, fault, self._fetched()))
        if layout.is_read:
            return changed(self._served(), partial(self._failed_rows, fault))
        refused, is_left = take_out(fault, self._request, self._name_of, partial(self._held, fault))
        if self._api == "Produce" and self._request.acks == 0:
            if is_left:
                self._served()
            raise CloseConnection(f"acks=0 and a partition failed with {fault.error}")
        if not is_left:
            return refused_alone(self._api, refused)
        return changed(self._served(), partial(self._with_rows, refused))

    def _held(self, fault: Fault, topic: Any, row: Any) -> None:
        """The next batch of the producer is refused as well, as a broker does."""
        if self._api == "Produce":
            key = topic.name or topic.topic_id, row.index
            record_refused(self._context.peer.refused, key, row.records or b"", fault.code)

    def _with_rows(self, refused: list[Any], response: Any) -> Any:
        add(self._api, response, refused)
        return response

    def _failed_rows(self, fault: Fault, response: Any) -> Any:
        replace(fault, response, self._name_of)
        return response

    def _failed_fetch(
        self, fault: Fault, fetched: list[tuple[Any, int]], response: FetchResponse
    ) -> FetchResponse:
        """A fetch within a session gets rows for partitions that had nothing new, too."""
        if response.error_code:
            return response
        replace(fault, response, self._name_of)
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        present = {
            (topic.topic_id if by_id else topic.topic, row.partition_index)
            for topic in response.responses
            for row in topic.partitions
        }
        for key in fetched:
            if key not in present and fault.names_row(self._name(key[0]), key[1]):
                topic = FetchResponse.FetchableTopicResponse(
                    **{"topic_id" if by_id else "topic": key[0]}
                )
                row = FetchResponse.PartitionData(partition_index=key[1])
                topic.partitions = [failed("Fetch", FetchResponse.PartitionData, row, fault.code)]
                add("Fetch", response, [topic])
        return response

    def _torn(self, armed: ArmedFault, response: FetchResponse) -> FetchResponse:
        """Cut the records of the partitions that are hit; a fetch without any is not hit."""
        limit = armed.fault.tear
        assert limit is not None, "it tears"
        rows = [
            row
            for topic in response.responses
            for row in topic.partitions
            if armed.fault.names_row(topic_of(topic, self._name_of), row.partition_index)
            and row.records is not None
            and len(row.records) > limit
        ]
        if rows and armed.is_due():
            log.info("fault_hit", api=self._api, fault=armed.number, hits=armed.hits)
            for row in rows:
                row.records = _first(row.records, limit)
        return response


def _first(records: Any, limit: int) -> bytes:
    """The first bytes of records in memory or in a file."""
    if isinstance(records, bytes | bytearray | memoryview):
        return bytes(records[:limit])
    piece = cast("FileSlice", records)
    return os.pread(piece.fd, limit, piece.position)
