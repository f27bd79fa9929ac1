"""Follows the history of a prefix through lost connections, restarts, elections and compactions.

Each stream continues after the last event or progress notice. The `created` notice does not count:
its revision is the newest of the store, and events before it are still to come. A progress notice
is passed on as a revision without events: others may write to the same etcd, whose revisions then
change nothing under the prefix. If etcd has compacted the position, the keys are listed at one
revision and passed on as a Snapshot.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from logfleet.io.etcd.endpoints import Compacted, EtcdMember, Members, NoResponse, translate_error
from logfleet.io.etcd.messages import EtcdCodec
from logfleet.io.etcd.shim import rpc
from logfleet.metadata.store import Snapshot, StoreRefused, StoreUnavailable, WatchBatch

IDLE_PROBE_S = 1.0
"""Interval at which the member of a silent stream is probed.

A frozen one keeps its connections open.
"""
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.05, 2.0


async def follow(
    members: Members,
    codec: EtcdCodec,
    prefix: str,
    after_revision: int | None,
    *,
    snapshot_of: Callable[[str], Awaitable[Snapshot]],
    confirm: Callable[[], Awaitable[None]],
    check_header: Callable[[Any], None],
) -> AsyncGenerator[Snapshot | WatchBatch, None]:
    """As MetadataStore.watch.

    confirm: called before each stream; raises StoreReplaced if the store has gone back (a wiped or
    restored one may keep its cluster id, and a watch from a revision it has not reached would be
    silent). check_header: raises StoreReplaced for a header of another cluster.
    """
    position = after_revision
    backoff_s = BACKOFF_S_MIN
    while not members.closed.done():
        member = members.current
        try:
            if position is None:
                snapshot = await snapshot_of(prefix)
                position = snapshot.revision
                yield snapshot
                continue
            await confirm()
            request = codec.watch_request(prefix, position + 1)
            async with aclosing(_responses(members, member, request)) as responses:
                async for response in responses:
                    check_header(response.header)
                    backoff_s = BACKOFF_S_MIN
                    if response.created:
                        continue
                    for batch in codec.batches(response):
                        position = batch.revision
                        yield batch
                    if not response.events and response.header.revision > position:
                        position = response.header.revision
                        yield WatchBatch(position, ())
        except Compacted:
            position = None
        except (NoResponse, StoreUnavailable):
            members.rotate(member)
            await members.pause(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)


async def _responses(
    members: Members, member: EtcdMember, request: Any
) -> AsyncGenerator[Any, None]:
    """One stream's responses.

    Ends with NoResponse, Compacted, StoreRefused or StoreUnavailable (closed).
    """
    # Without this a member that is cut off from its leader would keep the stream open and silent.
    call = member.watch.Watch(metadata=(("hasleader", "true"),))
    probe = rpc.RangeRequest(key=request.create_request.key, serializable=True, keys_only=True)
    try:
        await call.write(request)
        while True:
            response = await _read(members, member, call, probe)
            if response is grpc.aio.EOF:
                raise NoResponse(f"{member.target}: the watch ended")
            if response.canceled:
                raise _why_canceled(response, member.target)
            yield response
    except grpc.aio.AioRpcError as error:
        raise translate_error(error, member.target) from error
    except asyncio.InvalidStateError as error:  # writing to a call that has already failed
        raise NoResponse(f"{member.target}: {error}") from error
    finally:
        call.cancel()


async def _read(members: Members, member: EtcdMember, call: Any, probe: Any) -> Any:
    """The stream's next message, or EOF.

    Raises NoResponse if the member does not respond to a probe.
    """
    read = asyncio.ensure_future(call.read())
    try:
        while True:
            await asyncio.wait(
                [read, members.closed],
                timeout=IDLE_PROBE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if read.done() and not members.closed.done():
                return read.result()
            await members.ask(member, lambda each: each.kv.Range, probe)
    finally:
        if not read.done():
            call.cancel()
            await asyncio.wait([read])
        if not read.cancelled():
            read.exception()  # retrieved, or asyncio logs that it never was


def _why_canceled(response: Any, target: str) -> Exception:
    if response.compact_revision:
        return Compacted(f"{target}: compacted to {response.compact_revision}")
    if "permission denied" in response.cancel_reason or "auth" in response.cancel_reason:
        return StoreRefused(f"etcd: {target}: {response.cancel_reason}")
    return NoResponse(f"{target}: watch canceled: {response.cancel_reason}")
