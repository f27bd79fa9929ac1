"""I34 and I37 under transactions, plain commits, deletions, expiry, slow followers and failovers.

Producers stage offsets and end their transactions in any order; markers come late, twice, or for
producers that have staged nothing. The model is Kafka's bookkeeping, rebuilt from the log.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from logfleet.groups.config import GroupConfig
from logfleet.groups.records import OffsetRecord
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetFetchRequest, OffsetFetchResponse

from broker_image.tests.scenario.group_host import GroupHost
from broker_image.tests.scenario.group_script import GROUP, Script

PRODUCER = st.sampled_from([7, 8, 9])
PARTITION = st.integers(0, 2)
RETENTION_MS = 60_000
Place = tuple[str, str, int]


class Model:
    """What a log defines: what is committed (at which place of the log), and what is staged."""

    def __init__(self, host: GroupHost, end: int) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.staged: dict[int, dict[Place, tuple[int, int]]] = {}
        for at, entry in enumerate(host.log[:end]):
            if entry.commits is None:
                record = host._decode(entry)
                if isinstance(record, OffsetRecord):
                    self._write(at, record, entry.producer_id)
            else:
                assert entry.producer_id is not None
                for place, found in self.staged.pop(entry.producer_id, {}).items():
                    if entry.commits and found[0] > self.committed.get(place, (-1, 0))[0]:
                        self.committed[place] = found

    def _write(self, at: int, record: OffsetRecord, producer_id: int | None) -> None:
        place = (record.key.group, record.key.topic, record.key.partition)
        if record.value is None:
            self.committed.pop(place, None)
            for found in self.staged.values():
                found.pop(place, None)
        elif producer_id is None:
            self.committed[place] = (at, record.value.offset)
        else:
            self.staged.setdefault(producer_id, {})[place] = (at, record.value.offset)

    @property
    def offsets(self) -> dict[Place, int]:
        return {place: offset for place, (_, offset) in self.committed.items()}

    @property
    def unstable(self) -> set[Place]:
        return {place for found in self.staged.values() for place in found}


class Offsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.host = self.script.host = GroupHost(GroupConfig(offsets_retention_ms=RETENTION_MS))
        self.commits = 0
        self.fetches: dict[object, int] = {}
        self.seen = 0

    @rule(producer=PRODUCER, partitions=st.sets(PARTITION, min_size=1))
    def stage(self, producer, partitions):
        self.commits += 1
        words = " ".join(f"t-{number}={self.commits}" for number in sorted(partitions))
        self.script.run(f"stage {producer} {words}")

    @rule(partition=PARTITION)
    def commit(self, partition):
        self.commits += 1
        self.script.run(f"commit nobody t-{partition}={self.commits}")

    @rule(producer=PRODUCER, is_commit=st.booleans(), twice=st.booleans())
    def end(self, producer, is_commit, twice):
        for _ in range(1 + twice):
            self.host.end_transaction(producer, is_commit=is_commit)

    @rule()
    def delete_group(self):
        self.script.run("delete")

    @rule()
    def expire(self):
        self.host.now_ms += RETENTION_MS
        before = Model(self.host, len(self.host.log))
        turn = self.host.turn()
        self.host.coordinator.expiry.step(turn)
        self.host.run(turn)
        after = Model(self.host, len(self.host.log))
        assert after.unstable == before.unstable, "an unstable offset expired"

    @rule(require_stable=st.booleans())
    def fetch(self, require_stable):
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 2])
        request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        decided = Model(self.host, len(self.host.log))
        waiter = ("fetch", len(self.fetches))
        self.fetches[waiter] = end = len(self.host.log)
        turn = self.host.turn()
        self.host.coordinator.fetch(turn, request, waiter, require_stable=require_stable)
        self.host.run(turn)
        answers = dict(self.host.replies)
        if waiter not in answers:
            assert self.host.holds_commits, "a fetch waits for what is committed already"
            return
        assert self.host.committed_end >= end, "I37: a fetch saw what was not committed"
        response = answers[waiter]
        assert isinstance(response, OffsetFetchResponse.OffsetFetchResponseGroup)
        for row in response.topics[0].partitions:
            place = (GROUP, "t", row.partition_index)
            if require_stable and place in decided.unstable:
                assert row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT, "I37"
            else:
                assert row.error_code == ErrorCode.NONE, "I37: 88 without a staged offset"
                assert row.committed_offset == decided.offsets.get(place, -1)

    @rule(error=st.sampled_from([ErrorCode.NONE] * 3 + [ErrorCode.NOT_ENOUGH_REPLICAS]))
    def storage(self, error):
        self.host.append_error = error

    @rule()
    def followers_lag(self):
        self.host.holds_commits = True

    @rule()
    def followers_catch_up(self):
        self.host.holds_commits = False
        self.host.commit()

    @rule()
    def failover(self):
        self.host.unload()
        self.host.load()

    @invariant()
    def live_state_is_what_the_log_defines(self):
        fresh = GroupHost(self.host.config)
        fresh.log = list(self.host.log)
        fresh.committed_end = len(fresh.log)
        fresh.load()
        mine, other = self.host.coordinator._table, fresh.coordinator._table
        assert mine.offsets == other.offsets, "I34"
        assert mine.staged._groups == other.staged._groups, "I34"
        model = Model(self.host, len(self.host.log))
        committed = {
            (group, topic, number): value.offset
            for group, topic, number, value in self.host.coordinator.committed_offsets()
        }
        assert committed == model.offsets
        assert {(GROUP, *place) for place in mine.staged.partitions(GROUP)} == model.unstable
        assert len(mine.staged) == sum(map(len, model.staged.values())), "I38"


Offsets.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestOffsets = Offsets.TestCase
