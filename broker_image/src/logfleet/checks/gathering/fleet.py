"""Gathers the snapshot of a fleet, by Kafka's protocol and from the brokers' admin ports.

What cannot be asked becomes a gap: a broker that is down, a port that does not answer, something
that an Apache Kafka does not have. Brokers are asked at the same time; the whole is bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec

from logfleet.checks.gathering.asking import Asking
from logfleet.checks.gathering.assembly import Answers, snapshot_of
from logfleet.checks.gathering.configs import own_config, topic_configs
from logfleet.checks.gathering.groups import groups_at
from logfleet.checks.gathering.offsets import leaders_of, newest_batches, offsets_at
from logfleet.checks.readings import readings
from logfleet.checks.snapshot import Batch, Gap, Part, Snapshot
from logfleet.client.admin import Admin, ClusterDescription
from logfleet.client.cluster import Client
from logfleet.client.features import describe_level
from logfleet.client.log_admin import describe_log_dirs
from logfleet.client.offsets import OffsetAt, OffsetSpec, TopicPartition
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.telemetry.flows import Flow

SECONDS_MAX: Final = 20.0
FIRST_SHARE: Final = 0.75
"""Of the time: for what is asked first. The rest is asked by what was found."""
HOUR_MS: Final = 3_600_000
WEEK_MS: Final = 7 * 24 * HOUR_MS
BUSY_MAX: Final = 50
"""Partitions whose newest batch is fetched."""


class AdminAnswers(Protocol):
    """Of brokers' admin ports, by broker id: the text of each, or why there is none.

    clocks_ahead_s: by how much each broker's clock is ahead of the one here.
    """

    @property
    def texts(self) -> Mapping[int, str]: ...
    @property
    def failures(self) -> Mapping[int, str]: ...
    @property
    def clocks_ahead_s(self) -> Mapping[int, float]: ...


AskAdmin: TypeAlias = Callable[[ClusterDescription, str], Awaitable[AdminAnswers]]
"""Asks brokers for a path, such as /metrics."""


async def gather_snapshot(
    client: Client, *, ask_admin: AskAdmin | None = None, seconds_max: float = SECONDS_MAX
) -> Snapshot:
    """The fleet as it is now. ask_admin: None leaves out what only admin ports report.

    seconds_max: for all after the first answers. Raises ClientError if brokers and topics cannot be
    listed; whatever else fails is a gap.
    """
    admin = Admin(client)
    found = await admin.describe_cluster(include_fenced=True)
    topics = await admin.list_topics()
    active = [node.id for node in found.brokers if node.id not in found.fenced]
    gaps: list[Gap] = []
    asking = Asking(seconds_max * FIRST_SHARE, gaps)
    answers = Answers(now_ms=SYSTEM_CLOCK.now_ms())
    leaders = leaders_of(topics)
    ask = partial(offsets_at, client, leaders)
    nowhere: dict[TopicPartition, OffsetAt] = {}
    no_batches: dict[TopicPartition, Batch] = {}
    answers.apis = await asking.of_each(Part.BROKERS, active, partial(_versions, client))
    names = [topic.name for topic in topics]
    reachable = sorted(answers.apis)
    (
        (answers.configs, answers.level, answers.begins, answers.newest),
        (answers.broker_configs, answers.disks, groups),
        _,
    ) = await asyncio.gather(
        asyncio.gather(
            asking.part(Part.CONFIGS, partial(topic_configs, client, names), None),
            asking.part(Part.FEATURES, partial(describe_level, client), None),
            asking.part(
                Part.OFFSETS, partial(ask, dict.fromkeys(leaders, OffsetSpec.EARLIEST)), nowhere
            ),
            asking.part(
                Part.TIMES, partial(ask, dict.fromkeys(leaders, OffsetSpec.MAX_TIMESTAMP)), nowhere
            ),
        ),
        asyncio.gather(
            asking.of_each(Part.BROKERS, reachable, partial(own_config, client)),
            asking.of_each(Part.DISKS, reachable, partial(describe_log_dirs, client)),
            asking.of_each(Part.GROUPS, reachable, partial(groups_at, client)),
        ),
        _ask_admin_ports(asking, answers, found, ask_admin),
    )
    answers.groups = [group for each in groups.values() for group in each]
    asking = Asking(seconds_max * (1 - FIRST_SHARE), gaps)
    # Behind the committed offsets: else those of a group that reads now could be beyond the ends.
    latest = dict.fromkeys(leaders, OffsetSpec.LATEST)
    answers.ends = await asking.part(Part.OFFSETS, partial(ask, latest), nowhere)
    hour_ago, week_ago = answers.now_ms - HOUR_MS, answers.now_ms - WEEK_MS
    lagging, busy = answers.lagging(), answers.busiest(BUSY_MAX)
    answers.hour_old, answers.week_old, answers.batches = await asyncio.gather(
        asking.part(Part.TIMES, partial(ask, dict.fromkeys(lagging, hour_ago)), nowhere),
        asking.part(Part.TIMES, partial(ask, dict.fromkeys(lagging, week_ago)), nowhere),
        asking.part(Part.BATCHES, partial(newest_batches, client, leaders, busy), no_batches),
    )
    return snapshot_of(found, topics, answers, gaps)


async def _versions(client: Client, broker_id: int) -> dict[int, tuple[int, int]]:
    """What a broker speaks. Raises ClientError if it cannot be reached."""
    return (await client.broker(broker_id)).versions


async def _ask_admin_ports(
    asking: Asking, answers: Answers, found: ClusterDescription, ask: AskAdmin | None
) -> None:
    if ask is None:
        _none_answers(asking, "only admin ports report it, and they were not asked")
        return
    metrics, traffic = await asyncio.gather(
        asking.part(Part.METRICS, partial(ask, found, "/metrics"), None),
        asking.part(Part.METRICS, partial(ask, found, "/traffic"), None),
    )
    if metrics is None or traffic is None:
        asking.gaps += [Gap(Part.CLOCKS, gap.reason) for gap in asking.gaps[-1:]]
        return
    for broker, reason in metrics.failures.items():
        asking.gaps.append(Gap(Part.METRICS, reason, broker))
    if not metrics.texts:
        _none_answers(asking, next(iter(metrics.failures.values()), "no broker answers"))
    answers.readings = {broker: readings(text) for broker, text in metrics.texts.items()}
    answers.clocks = metrics.clocks_ahead_s
    decoder = msgspec.json.Decoder(Flow)
    found_flows: dict[TopicPartition, Flow] = {}
    for broker, text in traffic.texts.items():
        try:
            flows = decoder.decode_lines(text)
        except msgspec.MsgspecError as error:
            asking.gaps.append(Gap(Part.METRICS, f"/traffic cannot be read: {error}", broker))
        else:
            found_flows |= {TopicPartition(flow.topic, flow.partition): flow for flow in flows}
    answers.flows = found_flows


def _none_answers(asking: Asking, reason: str) -> None:
    asking.gaps += [Gap(Part.METRICS, reason), Gap(Part.CLOCKS, reason)]
