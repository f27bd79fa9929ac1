"""One task that samples the cluster part by part, and never takes more than 5 % of a core.

Each part has a period and a share of a core: what took long is repeated later. Pages do not wait
for any of it.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from logfleet.checks import run
from logfleet.checks.gathering.fleet import gather_snapshot
from logfleet.client.admin import Admin, ResourceType
from logfleet.client.brokers.admin_port import NoAnswer, ask
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, NotSupported
from logfleet.client.groups import GroupListing, Groups
from logfleet.client.log_admin import describe_log_dirs
from logfleet.client.metadata import Node
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.client.reassignments import list_reassignments
from logfleet.config.broker import ADMIN_LISTENER
from logfleet.console.history import History
from logfleet.console.sample import (
    UNKNOWN,
    BrokerFacts,
    Directory,
    GroupSample,
    Sample,
    count_partitions,
)
from logfleet.telemetry.flows import Flow

T = TypeVar("T")

CHUNK: Final = 1_000
"""Partitions of one request, so that no response occupies the loop for long."""
GROUPS_AT_ONCE: Final = 50
EVENTS_MAX: Final = 5_000
TOPIC_KEYS: Final = ("min.insync.replicas", "cleanup.policy", "retention.ms")
CORDONED: Final = "cordoned.log.dirs"
ANSWER_MS_MAX: Final = 3_000
RETRY_S: Final = 3.0
CHECKS_S_MAX: Final = 5.0


class Part(NamedTuple):
    """period_s: the shortest. share: of one core, at most."""

    take: Callable[[], Awaitable[None]]
    period_s: float
    share: float


class Sampler:
    """`sample` is the last one; `run` takes samples until it is cancelled."""

    def __init__(self, bootstrap: str) -> None:
        self.sample = Sample()
        self.history = History()
        self.client = Client(
            bootstrap,
            client_id="logfleet-console",
            request_timeout_ms=ANSWER_MS_MAX,
            timeout_ms=0,
        )
        self._admin = Admin(self.client)
        self._groups_due: list[GroupListing] = []
        self._parts = {
            "cluster": Part(self._cluster, 1, 0.004),
            "topics": Part(self._topics, 5, 0.012),
            "settings": Part(self._settings, 60, 0.001),
            "ends": Part(self._ends, 5, 0.012),
            "begins": Part(self._begins, 60, 0.001),
            "groups": Part(self._groups, 5, 0.010),
            "disks": Part(self._disks, 60, 0.002),
            "brokers": Part(self._brokers, 30, 0.002),
            "checks": Part(self._checks, 60, 0.003),
            "events": Part(self._events, 3, 0.002),
            "traffic": Part(self._traffic, 10, 0.001),
        }
        self._due = dict.fromkeys(self._parts, 0.0)

    async def run(self) -> None:
        """Sample for ever; a part that fails is repeated in its turn."""
        while True:
            for name, part in self._parts.items():
                if self._due[name] <= time.monotonic():
                    await self._take(name, part)
            pause = min(self._due.values()) - time.monotonic()
            await asyncio.sleep(max(pause, 0.02))

    def refresh(self) -> None:
        """Take all parts again at once: something was changed."""
        self._due = dict.fromkeys(self._parts, 0.0)

    async def _take(self, name: str, part: Part) -> None:
        began, period_s = time.thread_time(), part.period_s
        failures = dict(self.sample.failures)
        failures.pop(name, None)
        try:
            await part.take()
        except (ClientError, NoAnswer, TimeoutError) as error:
            failures[name] = str(error)
            period_s = min(period_s, RETRY_S)
        else:
            at_s = {**self.sample.at_s, name: time.time()}
            self.sample = replace(self.sample, at_s=at_s)
        self.sample = replace(self.sample, failures=failures)
        # pages that were served meanwhile count as well: the sampler yields to them
        spent = time.thread_time() - began
        self._due[name] = time.monotonic() + max(period_s, spent / part.share)

    # --- parts

    async def _cluster(self) -> None:
        before = self.sample.cluster
        cluster = await self._admin.describe_cluster(include_fenced=True)
        self.sample = replace(self.sample, cluster=cluster)
        if before is not None and before != cluster:
            self._due["topics"] = self._due["brokers"] = 0.0  # leaders have changed with it

    async def _topics(self) -> None:
        topics = {topic.name: topic for topic in await self._admin.list_topics()}
        partitions = count_partitions(topics, self.sample.settings)
        try:
            moving = tuple(sorted(await list_reassignments(self.client)))
        except NotSupported:
            moving = ()
        self.sample = replace(self.sample, topics=topics, partitions=partitions, moving=moving)
        self.history.ends.keep(topics)

    async def _settings(self) -> None:
        values: dict[str, dict[str, str]] = {name: {} for name in self.sample.topics}
        for key in TOPIC_KEYS:
            for names in _chunks(list(values)):
                for name, value in (await self._admin.topic_values(names, key)).items():
                    values.setdefault(name, {})[key] = value
                await asyncio.sleep(0)
        partitions = count_partitions(self.sample.topics, values)
        self.sample = replace(self.sample, settings=values, partitions=partitions)

    async def _ends(self) -> None:
        ends = await self._offsets(OffsetSpec.LATEST, self.sample.ends)
        self.sample = replace(self.sample, ends=ends)
        now_s = time.time()
        for name, offsets in ends.items():
            self.history.ends.add(name, now_s, sum(end for end in offsets if end > 0))
        rings = self.history.ends
        self.history.written.add(now_s, sum(rings.get(name).rate() for name in rings.moving()))

    async def _begins(self) -> None:
        begins = await self._offsets(OffsetSpec.EARLIEST, self.sample.begins)
        self.sample = replace(self.sample, begins=begins)

    async def _offsets(
        self, spec: OffsetSpec, before: Mapping[str, Sequence[int]]
    ) -> dict[str, list[int]]:
        """By topic and partition; what a broker does not answer stays as it was."""
        found: dict[str, list[int]] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for name, topic in self.sample.topics.items():
            last = before.get(name, ())
            missing = [UNKNOWN] * (len(topic.partitions) - len(last))
            found[name] = [*last, *missing][: len(topic.partitions)]
            for each in topic.partitions:
                if each.leader >= 0:
                    key = TopicPartition(name, each.index)
                    by_leader.setdefault(each.leader, []).append(key)
        failure: ClientError | None = None
        for keys in by_leader.values():
            for chunk in _chunks(keys):
                try:
                    answered = await list_offsets(self.client, dict.fromkeys(chunk, int(spec)))
                except ClientError as error:
                    failure = error
                    break  # its leader does not answer now
                for key, at in answered.items():
                    found[key.topic][key.partition] = at.offset
                await asyncio.sleep(0)
        if failure is not None and len(by_leader) == 1:
            raise failure
        return found

    async def _groups(self) -> None:
        """List all, describe the next GROUPS_AT_ONCE of them."""
        groups = Groups(self.client)
        listed = {listing.group: listing for listing in await groups.list()}
        if not self._groups_due:
            self._groups_due = list(listed.values())
        turn, self._groups_due = (
            self._groups_due[:GROUPS_AT_ONCE],
            self._groups_due[GROUPS_AT_ONCE:],
        )
        found = {name: each for name, each in self.sample.groups.items() if name in listed}
        for listing in turn:
            if listing.group in listed:
                found[listing.group] = await self._group(groups, listed[listing.group])
        for name, listing in listed.items():
            if name not in found:
                found[name] = GroupSample(name, listing.state, listing.kind, 0.0)
        self.sample = replace(self.sample, groups=found)
        for listing in turn:
            if (group := found.get(listing.group)) is not None and group.committed:
                lag = sum(self.sample.lag(group).values())
                self.history.lags.add(group.name, group.at_s, lag)
                self.history.commits.add(group.name, group.at_s, sum(group.committed.values()))
        self.history.lags.keep(listed)
        self.history.commits.keep(listed)

    async def _group(self, groups: Groups, listing: GroupListing) -> GroupSample:
        sample = GroupSample(listing.group, listing.state, listing.kind, time.time())
        try:
            committed = await groups.committed(listing.group, require_stable=False)
            sample = replace(
                sample, committed={key: each.offset for key, each in committed.items()}
            )
            described = await groups.describe(listing.group)
        except ClientError as error:
            # a kind of group that this client cannot describe still has offsets
            return replace(sample, error=str(error))
        return replace(
            sample,
            state=described.state,
            assignor=described.assignor,
            members=described.members,
        )

    async def _disks(self) -> None:
        directories: list[Directory] = []
        sizes: dict[str, list[int]] = {}
        for node in self._nodes():
            try:
                described = await describe_log_dirs(self.client, node.id)
            except ClientError as error:
                failed = Directory(node.id, "-", str(error), UNKNOWN, UNKNOWN, 0, 0)
                directories.append(failed)
                continue
            for each in described:
                size = sum(log.size for log in each.logs)
                directories.append(
                    Directory(
                        each.broker,
                        each.path,
                        each.error,
                        each.total_bytes,
                        each.usable_bytes,
                        size,
                        len(each.logs),
                    )
                )
                for log in each.logs:
                    topic = self.sample.topics.get(log.partition.topic)
                    if topic is None or log.partition.partition >= len(topic.partitions):
                        continue
                    copies = sizes.setdefault(topic.name, [UNKNOWN] * len(topic.partitions))
                    largest = max(copies[log.partition.partition], log.size)
                    copies[log.partition.partition] = largest
            await asyncio.sleep(0)
        self.sample = replace(self.sample, directories=tuple(directories), sizes=sizes)

    async def _brokers(self) -> None:
        found = {}
        for node in self._nodes():
            try:
                entries = await self._admin.config(ResourceType.BROKER, str(node.id))
            except ClientError:
                continue
            listener = entries[ADMIN_LISTENER].value if ADMIN_LISTENER in entries else None
            cordoned = CORDONED in entries and entries[CORDONED].value == "*"
            found[node.id] = BrokerFacts(cordoned, listener)
        self.sample = replace(self.sample, brokers=found)

    async def _checks(self) -> None:
        """What `logfleet check` finds, without what only admin ports report."""
        snapshot = await gather_snapshot(self.client, seconds_max=CHECKS_S_MAX)
        self.sample = replace(self.sample, findings=tuple(run(snapshot)))

    async def _events(self) -> None:
        """Ask each broker for what is newer than its last one."""
        last: dict[int, int] = {}
        for each in self.sample.events:
            last[each["by"]] = each["time_ms"]
        seen = {(each["by"], each["number"]) for each in self.sample.events}
        found = list(self.sample.events)
        for node in self._nodes():
            for text in await self._asked(node, "/events", {"since": [str(last.get(node.id, 0))]}):
                rows = [json.loads(line) for line in text.splitlines()]
                found += [each for each in rows if (each["by"], each["number"]) not in seen]
        found.sort(key=lambda each: (each["time_ms"], each["by"], each["number"]))
        self.sample = replace(self.sample, events=tuple(found[-EVENTS_MAX:]))

    async def _traffic(self) -> None:
        flows: dict[TopicPartition, Flow] = {}
        asked = False
        for node in self._nodes():
            for text in await self._asked(node, "/traffic", {}):
                asked = True
                for flow in msgspec.json.Decoder(Flow).decode_lines(text):
                    flows[TopicPartition(flow.topic, flow.partition)] = flow
        self.sample = replace(self.sample, flows=flows)
        if asked:
            now_s = time.time()
            self.history.bytes_in.add(now_s, sum(flow.bytes_in for flow in flows.values()))
            self.history.bytes_out.add(now_s, sum(flow.bytes_out for flow in flows.values()))

    async def _asked(self, node: Node, path: str, parameters: dict[str, list[str]]) -> list[str]:
        """One text; none if the broker has no admin port or does not answer."""
        facts, cluster = self.sample.brokers.get(node.id), self.sample.cluster
        if facts is None or not facts.admin_listener or cluster is None:
            return []
        try:
            answer = await ask(cluster.cluster_id, node, facts.admin_listener, path, parameters)
        except NoAnswer:
            return []
        return [answer.text]

    def _nodes(self) -> list[Node]:
        """Brokers that serve: fenced ones may not answer."""
        cluster = self.sample.cluster
        if cluster is None:
            return []
        return [node for node in cluster.brokers if node.id not in cluster.fenced]


def _chunks(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
