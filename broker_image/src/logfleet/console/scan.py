"""Reads ranges of a topic and keeps the records that are searched for, until it is stopped."""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.fetcher import Fetched, Fetcher
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.console.sample import UNKNOWN, Sample
from logfleet.records.aborted import visible_batches
from logfleet.records.batch import BatchHeader, crc_matches
from logfleet.records.errors import RecordsError
from logfleet.records.record import Record
from logfleet.records.search import Search
from logfleet.records.where import Where

BUDGET_BYTES: Final = 64 << 20
LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
BYTES_PER_S: Final = 50e6
"""Of a search, until one has been measured."""
UNSEEN_S_MAX: Final = 30.0
"""A search that no page has asked for in this time is stopped: its reader has gone."""
SCANS_MAX: Final = 16
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
Ranges = Mapping[TopicPartition, tuple[int, int]]
"""First offset and end of each partition."""


class Start(NamedTuple):
    """Where to begin in each partition; exactly one is set. last: records before the end."""

    spec: OffsetSpec | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


class Hit(NamedTuple):
    """A record that was found, and the header of its batch, whose checksum is right."""

    partition: int
    record: Record
    header: BatchHeader


class Wanted(msgspec.Struct, frozen=True):
    """A search as its address names it. partition: None for all. limit: records to be found."""

    topic: str
    partition: int | None
    start: Start
    search: Search
    limit: int
    budget: int

    @property
    def is_search(self) -> bool:
        return self.search != Search()


def parse_wanted(topic: str, given: Mapping[str, str], now_s: float) -> Wanted:
    """given: partition, from, contains, key, where, limit, budget. Raises ValueError."""
    contains, key, where = (given.get(name, "") for name in ("contains", "key", "where"))
    search = Search(
        contains.encode() or None, key.encode() or None, Where(where) if where else None
    )
    partition = given.get("partition", "")
    return Wanted(
        topic,
        _number("partition", partition) if partition else None,
        parse_start(given.get("from", "") or ("beginning" if search != Search() else "-50"), now_s),
        search,
        min(_number("limit", given.get("limit") or str(LIMIT)), LIMIT_MAX),
        _number("budget", given.get("budget") or str(BUDGET_BYTES)),
    )


def parse_start(text: str, now_s: float) -> Start:
    """beginning, an offset, -N for the last N, @10m for ten minutes ago or @ISO. ValueError."""
    if text in ("beginning", "end"):
        return Start(OffsetSpec.EARLIEST if text == "beginning" else OffsetSpec.LATEST)
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return Start(last=int(text[1:]))
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Start(offset=int(text))
    if match := re.fullmatch(r"@([0-9]{1,5})([smhd])", text):
        return Start(time_ms=int((now_s - int(match[1]) * UNITS_S[match[2]]) * 1000))
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(text.removeprefix("@"))
        if moment.tzinfo and moment.timestamp() >= 0 and text.startswith("@"):
            return Start(time_ms=int(moment.timestamp() * 1000))
    raise ValueError(
        f"from {text!r}: write beginning, an offset, -N for the last N of each partition, @10m for "
        f"ten minutes ago, or @2013-01-01T00:00:00Z"
    )


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(f"{name} {text!r} is not a number")
    return int(text)


async def ranges_of(client: Client, wanted: Wanted) -> dict[TopicPartition, tuple[int, int]]:
    """What is to be read of each partition as it is now. Raises ClientError, ValueError."""
    topic = await client.topic(wanted.topic)
    keys = [TopicPartition(topic.name, each.index) for each in topic.partitions if each.leader >= 0]
    if wanted.partition is not None:
        keys = [key for key in keys if key.partition == wanted.partition]
        if not keys:
            raise ValueError(f"partition {wanted.partition} of {topic.name} is not there")
    start = wanted.start
    if start.last is not None and not wanted.is_search:
        # a list shows `limit` records of all partitions together
        start = Start(last=min(start.last, -(-wanted.limit // len(keys))))
    return await offsets_at_start(client, keys, start)


async def offsets_at_start(
    client: Client, keys: Sequence[TopicPartition], start: Start
) -> dict[TopicPartition, tuple[int, int]]:
    """The offset of that start in each partition, within its log, and the end. ClientError."""

    async def at(time_ms: int) -> dict[TopicPartition, int]:
        found = await list_offsets(client, dict.fromkeys(keys, int(time_ms)))
        return {key: each.offset for key, each in found.items()}

    begins, ends = await at(OffsetSpec.EARLIEST), await at(OffsetSpec.LATEST)
    if start.time_ms is not None:
        found = await at(start.time_ms)
        first = {key: found[key] if found[key] >= 0 else ends[key] for key in keys}
    elif start.last is not None:
        first = {key: ends[key] - start.last for key in keys}
    else:
        first = ends if start.spec is OffsetSpec.LATEST else dict.fromkeys(keys, start.offset or 0)
    return {key: (min(max(first[key], begins[key]), ends[key]), ends[key]) for key in keys}


def price(sample: Sample, ranges: Ranges, bytes_per_s: float) -> dict[str, float | int | None]:
    """Records and bytes at most, and seconds; None where sizes are unknown.

    A compacted log has fewer records.
    """
    size = 0.0
    known = True
    for key, (begin, end) in ranges.items():
        sizes, begins, ends = (
            rows.get(key.topic, ()) for rows in (sample.sizes, sample.begins, sample.ends)
        )
        if end <= begin:
            continue
        if not all(key.partition < len(rows) for rows in (sizes, begins, ends)):
            known = False
            continue
        whole = ends[key.partition] - begins[key.partition]
        known = known and sizes[key.partition] != UNKNOWN
        size += sizes[key.partition] * min(1.0, (end - begin) / whole) if whole > 0 else 0
    return {
        "records": sum(end - begin for begin, end in ranges.values()),
        "bytes": round(size) if known else None,
        "seconds": size / bytes_per_s if known else None,
    }


class Scan:
    """One search. state: running, done, stopped, limit, budget or failed; error: why it failed.

    found: as they come.
    """

    def __init__(self, bootstrap: str, wanted: Wanted, ranges: Ranges) -> None:
        self.wanted = wanted
        self.ranges = ranges
        self.total = sum(end - begin for begin, end in ranges.values())
        self.records = self.bytes = 0
        self.found: list[Hit] = []
        self.state, self.error = "running", ""
        self.began_s, self.seconds = time.monotonic(), 0.0
        self.seen_s: float | None = None
        self._bootstrap = bootstrap

    async def run(self) -> None:
        """Read until the end of the ranges, the limit or the budget. Cancelling it stops it."""
        try:
            async with Client(self._bootstrap, client_id="logfleet-console") as client:
                self.state = await self._read(client)
        except asyncio.CancelledError:
            self.state = "stopped"
        except (ClientError, RecordsError) as error:
            self.state, self.error = "failed", str(error)
        finally:
            self.seconds = time.monotonic() - self.began_s

    async def _read(self, client: Client) -> str:
        fetcher = Fetcher(client, max_wait_ms=100)
        left = {key: begin for key, (begin, end) in self.ranges.items() if begin < end}
        while left:
            fetcher.assign(left)
            for fetched in await fetcher.poll():
                begin, end = left.get(fetched.partition, 0), self.ranges[fetched.partition][1]
                # decompressing takes a while, and pages are served meanwhile
                self.found += await asyncio.to_thread(self._matches, fetched, end)
                self.records += min(fetched.end_offset, end) - begin
                self.bytes += len(fetched.batches)
                left[fetched.partition] = fetched.end_offset
                if len(self.found) >= self.wanted.limit:
                    return "limit"
                if self.bytes >= self.wanted.budget:
                    return "budget"
            left = {key: at for key, at in left.items() if at < self.ranges[key][1]}
            if self.seen_s is not None and time.monotonic() - self.seen_s > UNSEEN_S_MAX:
                return "stopped"
        return "done"

    def _matches(self, fetched: Fetched, end: int) -> list[Hit]:
        room = self.wanted.limit - len(self.found)
        found: list[Hit] = []
        partition = fetched.partition.partition
        for position, header in visible_batches(fetched.batches, fetched.aborted):
            if header.base_offset >= end:
                break
            if not crc_matches(fetched.batches, header, position):
                raise RecordsError(f"{fetched.partition}: checksum at {header.base_offset}")
            for record in self.wanted.search.matches(
                fetched.batches, position, partition=partition
            ):
                if fetched.offset <= record.offset < end:
                    found.append(Hit(partition, record, header))
                    if len(found) >= room:
                        return found
        return found


class Scans:
    """The searches of all browsers. The oldest that has ended makes room for a new one."""

    def __init__(self) -> None:
        self._scans: dict[str, tuple[Scan, asyncio.Task[None]]] = {}
        self.bytes_per_s = BYTES_PER_S

    def start(self, scan: Scan) -> str:
        """Begin in the background; returns its name. Raises ValueError if too many run."""
        for name, (each, _) in list(self._scans.items()):
            if len(self._scans) >= SCANS_MAX and each.state != "running":
                del self._scans[name]
        if len(self._scans) >= SCANS_MAX:
            raise ValueError(f"{SCANS_MAX} searches are running; stop one, or wait")
        name = secrets.token_urlsafe(9)
        scan.seen_s = time.monotonic()
        task = asyncio.create_task(scan.run())
        task.add_done_callback(lambda _: self._measure(scan))
        self._scans[name] = (scan, task)
        return name

    def get(self, name: str) -> Scan | None:
        """The search of that name, which now counts as seen."""
        if name not in self._scans:
            return None
        scan, _ = self._scans[name]
        scan.seen_s = time.monotonic()
        return scan

    async def stop(self, name: str) -> None:
        """Stop it and wait until it has; nothing if it has ended."""
        if name in self._scans:
            scan, task = self._scans[name]
            task.cancel()
            await asyncio.wait([task])
            if scan.state == "running":  # it was stopped before its first step
                scan.state = "stopped"

    async def close(self) -> None:
        """Stop all of them."""
        for name in list(self._scans):
            await self.stop(name)

    def _measure(self, scan: Scan) -> None:
        if scan.bytes > 1 << 20 and scan.seconds:
            self.bytes_per_s = scan.bytes / scan.seconds
