"""Sequences that nobody wrote: create, produce, fetch, commit, alter, delete ... in any order, with right and wrong values.

A fixed number of them, the same in every run, or EXAMPLES=n others. One that differs is made as short as it gets, and printed.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp
from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.case import Case
from e2e.compare.corpora.versions import advertised
from e2e.compare.runs import Finding, Oracle, Tally
from e2e.compare.side import MadeTopic, Side

NAME: Final = "sequences"
FIXED_EXAMPLES: Final = 60
STEPS_MIN, STEPS_MAX = 4, 14
DELETE_RECORDS_KEY: Final = 21


class Step(msgspec.Struct, frozen=True):
    """One request. what: a function of Player; the numbers mean what that function makes of them."""

    what: str
    topic: int = 0
    index: int = 0
    number: int = 0
    other: int = 0


class Player:
    """Takes the steps on one side; knows what there is by their answers."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._ids: dict[str, bytes] = {}
        self._members: dict[str, tuple[str, int]] = {}
        self._producers: list[int] = []

    def take(self, step: Step) -> None:
        action: Callable[[Step], None] = getattr(self, step.what)
        action(step)

    def _topic(self, step: Step) -> MadeTopic:
        name = self._side.own_name(f"t{step.topic}")
        return MadeTopic(name, self._ids.get(name, b"unknown-unknown-"))

    def _group(self, step: Step) -> str:
        return f"{self._side.prefix}g{step.topic}"

    # --- topics

    def create(self, step: Step) -> None:
        name = self._topic(step).name
        answer = self._side.ask(r.create(r.creatable(name, step.number)))
        self._side.await_changes()
        (made,) = answer.topics
        if made.error_code == 0:
            self._ids[name] = made.topic_id
            self._side.await_leaders(name, made.num_partitions)

    def delete(self, step: Step) -> None:
        self._side.ask(r.delete(self._topic(step).name))
        self._side.await_changes()

    def grow(self, step: Step) -> None:
        kind = m.CreatePartitionsRequest
        name = self._topic(step).name
        topic = kind.CreatePartitionsTopic(name=name, count=step.number, assignments=None)
        answer = self._side.ask(kind(topics=[topic], timeout_ms=r.TIMEOUT_MS))
        self._side.await_changes()
        if answer.results[0].error_code == 0:
            self._side.await_leaders(name, step.number)

    def alter(self, step: Step) -> None:
        key, value = CONFIGS[step.number % len(CONFIGS)]
        operation = step.other % 2  # set, delete
        self._side.ask(r.alter(self._topic(step).name, (key, operation, value)))
        self._side.await_changes()

    def describe(self, step: Step) -> None:
        name = self._topic(step).name
        self._side.ask(r.metadata(name, allow_auto_topic_creation=False), 4 + step.other % 10)
        self._side.ask(r.describe_configs(name, *(key for key, _ in CONFIGS)))

    # --- records

    def produce(self, step: Step) -> None:
        codec = Codec(step.other % len(Codec))
        batch = r.batch(1 + step.number % 3, first=step.number, codec=codec)
        request = r.produce(self._topic(step), batch, index=step.index)
        self._side.ask(request, 8 + step.other % 6)

    def produce_once(self, step: Step) -> None:
        """With one of two producers, in any sequence."""
        while len(self._producers) < 2:
            kind = m.InitProducerIdRequest
            answer = self._side.get(kind(transactional_id=None, transaction_timeout_ms=60_000))
            self._producers.append(answer.producer_id)
        stamp = ProducerStamp(self._producers[step.other % 2], step.other // 2 % 2, step.number)
        batch = r.batch(1, first=step.number, producer=stamp)
        self._side.ask(r.produce(self._topic(step), batch, index=step.index), 12)

    def fetch(self, step: Step) -> None:
        row: dict[str, Any] = {"partition_max_bytes": 1 << step.other % 12}
        request = r.fetch(self._topic(step), step.number, index=step.index, **row)
        self._side.ask(request, 4 + step.other % 15)

    def find(self, step: Step) -> None:
        timestamp = (-1, -2, -3, r.T0, r.T0 + step.number)[step.other % 5]
        self._side.ask(r.list_offsets(self._topic(step), timestamp, index=step.index))

    def delete_records(self, step: Step) -> None:
        self._side.ask(r.delete_records(self._topic(step).name, step.number, index=step.index))

    # --- groups

    def join(self, step: Step) -> None:
        """The group's one member joins, for the first time or again."""
        group = self._group(step)
        member, _ = self._members.get(group, ("", -1))
        answer = self._side.ask(r.join(group, member), 5)
        if answer.error_code:
            answer = self._side.ask(r.join(group, answer.member_id), 5)
        self._members[group] = (answer.member_id, answer.generation_id)

    def sync(self, step: Step) -> None:
        member, generation = self._members.get(self._group(step), ("", -1))
        generation += step.other % 4 == 3
        self._side.ask(r.sync(self._group(step), member, generation, {member: b"all"}))

    def heartbeat(self, step: Step) -> None:
        member, generation = self._members.get(self._group(step), ("", -1))
        self._side.ask(r.heartbeat(self._group(step), member, generation))

    def leave(self, step: Step) -> None:
        member, _ = self._members.get(self._group(step), ("", -1))
        self._side.ask(r.leave(self._group(step), member))

    def commit(self, step: Step) -> None:
        """As the member, as nobody, or with a generation that is wrong."""
        group = self._group(step)
        member, generation = self._members.get(group, ("", -1))
        who, which = ((member, generation), ("", -1), (member, generation + 1))[step.other % 3]
        request = r.commit(
            group, self._topic(step), step.number, member=who, generation=which, index=step.index
        )
        self._side.ask(request, 2 + step.other % 9)

    def committed(self, step: Step) -> None:
        topic = None if step.other % 4 == 0 else self._topic(step)
        version = 2 + step.other % 9
        self._side.ask(r.committed(self._group(step), topic, indexes=(0, 1)), version)

    def groups(self, step: Step) -> None:
        self._side.ask(m.DescribeGroupsRequest(groups=[self._group(step)]))
        self._side.ask(m.ListGroupsRequest())

    def delete_group(self, step: Step) -> None:
        self._side.ask(m.DeleteGroupsRequest(groups_names=[self._group(step)]))


CONFIGS: Final = (
    ("max.message.bytes", "100"),
    ("max.message.bytes", "x"),
    ("message.timestamp.type", "LogAppendTime"),
    ("compression.type", "gzip"),
    ("cleanup.policy", "compact"),
    ("min.insync.replicas", "2"),
)
KINDS: Final = (
    *("create",) * 3,
    *("produce",) * 3,
    *("produce_once",) * 2,
    *("fetch",) * 2,
    *("find", "delete_records", "delete", "grow", "alter", "describe"),
    *("join", "sync", "commit", "committed") * 2,
    *("heartbeat", "leave", "groups", "delete_group"),
)


def steps(ours: Side) -> st.SearchStrategy[list[Step]]:
    """Sequences of what `ours` serves. Small numbers, so that they often speak of the same things."""
    kinds = [each for each in KINDS if each != "delete_records"]
    if DELETE_RECORDS_KEY in advertised(ours):
        kinds.append("delete_records")
    step = st.builds(
        Step,
        what=st.sampled_from(kinds),
        topic=st.integers(0, 1),
        index=st.integers(-1, 2) | st.just(0),
        number=st.integers(-1, 6),
        other=st.integers(0, 59),
    )
    first = st.builds(Step, what=st.just("create"), number=st.integers(1, 3))
    return st.builds(
        lambda begin, rest: [begin, *rest],
        first,
        st.lists(step, min_size=STEPS_MIN, max_size=STEPS_MAX),
    )


class Sequences:
    """examples: how many to try, others in every run; 0 for the fixed ones."""

    name: Final = NAME

    def __init__(self, ours: Side, examples: int) -> None:
        self._steps = steps(ours)
        self._examples = examples

    def play(self, oracle: Oracle, wanted: Callable[[str], bool], tally: Tally) -> None:
        if wanted(f"{NAME}/"):
            explore(oracle, self._steps, self._examples, tally)


def explore(
    oracle: Oracle, sequences: st.SearchStrategy[list[Step]], examples: int, tally: Tally
) -> None:
    """Tell of the differences of the shortest sequence that has some."""
    last: list[Finding] = []
    failing: list[Finding] = []

    @settings(
        max_examples=examples or FIXED_EXAMPLES,
        derandomize=not examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(sequences)
    def example(sequence: list[Step]) -> None:
        def play(side: Side) -> None:
            player = Player(side)
            for step in sequence:
                player.take(step)

        one = Tally()
        last[:] = oracle.judge(NAME, Case(f"{NAME}-{tally.cases}", play), one)
        tally.cases += 1
        tally.answers += one.answers
        tally.listed += one.listed
        tally.slowest = max(tally.slowest, one.slowest)
        failing[:] = last or failing
        assert not last
        assert not one.broken, one.broken

    try:
        example()
    except (AssertionError, FlakyFailure) as error:
        if not last:  # a case that is broken, or that does not fail again
            tally.broken.append(str(error)[:2000])
    tally.unlisted += failing
    oracle.tell(failing)
