"""What a controller at work notes; `Cluster` commits what the rules say."""

from collections.abc import Iterable

import msgspec
import pytest
from logfleet.controller.brokers import leaving
from logfleet.controller.brokers.stop_check import Objection
from logfleet.controller.brokers.suspects import fence_suspect
from logfleet.controller.changes.election_writes import elect
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.decisions import record_write
from logfleet.controller.terms.decisions import broker_kept
from logfleet.metadata.kinds.brokers import BROKER, SUSPECT, SuspectValue
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Txn
from logfleet.telemetry.decisions import PER_SECOND_MAX, Decisions, Kind, RecordedDecision

from broker_image.tests.unit.controller.cluster_rig import Cluster
from broker_image.tests.unit.controller.running.controller_rig import recorded


class Controlled(Cluster):
    """Brokers 1, 2 and 3, which hold the topic `t`; 1 leads it."""

    def __init__(self, partitions: int = 1) -> None:
        self.now_ms = 0
        self.decisions = Decisions(0, lambda: self.now_ms)
        super().__init__()
        self.start(1, 2, 3)
        self.create("t", -1, assignments=tuple((each, (1, 2, 3)) for each in range(partitions)))

    def do(self, steps: Iterable[Step]) -> None:
        self.do_all(pack(self.epoch, steps))

    def do_all(self, txns: Iterable[Txn], cause: str | None = None) -> None:
        for txn in txns:
            image = self.image
            assert self.commit(txn)
            record_write(self.decisions, image, txn, cause)

    def change(self, broker_id: int, **fields: object) -> None:
        """The broker rewrites its registration."""
        value = msgspec.structs.replace(self.image.brokers[broker_id].value, **fields)
        self.put(BROKER.key(broker_id), value)
        self.converge()

    def recorded(self, kind: Kind) -> list[RecordedDecision]:
        return recorded(self.decisions, kind)

    def elections(self) -> tuple[int, int]:
        """How many the metrics report, and how many of them were unclean."""
        count = self.decisions.count
        return count(Kind.ELECTION, Kind.UNCLEAN_ELECTION), count(Kind.UNCLEAN_ELECTION)

    def last(self, kind: Kind) -> RecordedDecision:
        return self.recorded(kind)[-1]


@pytest.fixture
def controlled() -> Controlled:
    return Controlled()


def test_an_election_reports_both_leaders_and_the_cause(controlled: Controlled) -> None:
    controlled.stop(1)
    assert controlled.recorded(Kind.ELECTION) == [
        RecordedDecision(
            time_ms=0,
            by=0,
            number=5,
            kind="election",
            cause="broker 1 is not registered any more: broker 2, which is in sync, leads",
            topic="t",
            partition=0,
            broker=2,
            facts={"leader": [1, 2], "leader_epoch": [0, 1], "isr": [[1, 2, 3], [2, 3]]},
        )
    ]
    assert controlled.elections() == (1, 0)


def test_each_reason_for_which_a_leader_is_replaced_is_distinguished(
    controlled: Controlled,
) -> None:
    uuid = controlled.uuid("t")
    controlled.change(1, offline={uuid: (0,)})
    assert controlled.last(Kind.ELECTION).cause.startswith("the log directory of broker 1 is off")
    for txn in leaving_txns(controlled, 2):
        controlled.do_all([txn])
    controlled.converge()
    assert controlled.last(Kind.ELECTION).cause.startswith("broker 2 leaves: broker 3")
    controlled.vanish(3)
    controlled.register(3)
    controlled.converge()
    cause = "broker 3 has registered again: broker 3, an eligible leader (ELR), leads"
    assert [each.cause for each in controlled.recorded(Kind.ELECTION)][-2:] == [
        "broker 3 has registered again: nobody else may lead",
        cause.replace("broker 3 has registered again", "nobody leads"),
    ]


def leaving_txns(controlled: Controlled, broker_id: int) -> Iterable[Txn]:
    controlled.change(broker_id, leaving=True)
    ((_, step),) = leaving.decide(controlled.image)
    assert isinstance(step, Step)
    return pack(controlled.epoch, [step])


def test_a_request_is_reported_as_the_cause(controlled: Controlled) -> None:
    controlled.stop(1)
    controlled.start(1)
    controlled.in_sync("t", 0, 1)
    step = elect(controlled.image, controlled.topic("t"), 0, unclean=False)
    assert isinstance(step, Step)
    controlled.do_all(pack(controlled.epoch, [step]), "ElectLeaders requests it")
    cause = "ElectLeaders requests it: broker 1, which is in sync, leads"
    assert controlled.last(Kind.ELECTION).cause == cause


def test_an_unclean_election_is_of_a_kind_of_its_own_and_counted_whatever_caused_it(
    controlled: Controlled,
) -> None:
    for broker_id in (3, 2, 1):
        controlled.stop(broker_id)
    assert controlled.last(Kind.ELECTION).cause.endswith(": nobody else may lead")
    assert controlled.last(Kind.ELECTION).facts["elr"] == [[], [1]]
    controlled.start(2)
    step = elect(controlled.image, controlled.topic("t"), 0, unclean=True)
    assert isinstance(step, Step)
    controlled.do_all(pack(controlled.epoch, [step]), "ElectLeaders requests it")
    (recorded,) = controlled.recorded(Kind.UNCLEAN_ELECTION)
    assert recorded.cause == (
        "ElectLeaders requests it: broker 2, the longest log of those that are there, "
        "leads and may lack records"
    )
    assert controlled.elections() == (1, 1)


def test_a_follower_that_is_taken_out_of_the_isr_is_reported(controlled: Controlled) -> None:
    controlled.stop(3)
    (recorded,) = controlled.recorded(Kind.ISR_SHRINK)
    assert (recorded.topic, recorded.partition, recorded.broker) == ("t", 0, 3)
    assert recorded.cause == "broker 3 is not registered any more"
    assert recorded.facts == {"isr": [[1, 2, 3], [1, 2]]}
    assert controlled.recorded(Kind.ELECTION) == []


def test_brokers_are_admitted_drained_and_fenced_with_the_cause(controlled: Controlled) -> None:
    (*_, recorded) = controlled.recorded(Kind.UNFENCED)
    epoch = controlled.image.brokers[3].epoch
    assert (recorded.broker, recorded.facts) == (3, {"epoch": epoch, "state": [None, "active"]})
    controlled.do_all(leaving_txns(controlled, 2))
    assert controlled.last(Kind.DRAINING).broker == 2
    controlled.stop(2)
    controlled.stop(3)
    assert [(each.broker, each.cause) for each in controlled.recorded(Kind.FENCED)] == [
        (2, "it has left"),
        (3, "its registration has ended: its lease expired, or it gave it up"),
    ]


def test_a_fenced_suspect_is_reported_with_its_reporters(
    controlled: Controlled,
) -> None:
    epoch = controlled.image.brokers[3].epoch
    for reporter in (2, 1):
        controlled.put(SUSPECT.key((3, reporter)), SuspectValue(epoch))
    controlled.do_all(fence_suspect(controlled.image, controlled.epoch, 3, epoch))
    cause = "it refuses connections, as brokers 1, 2 report and the controller's probe shows"
    assert controlled.last(Kind.FENCED).cause == cause


def test_a_broker_that_must_stay_is_reported_with_the_partition_that_needs_it(
    controlled: Controlled,
) -> None:
    objection = Objection("t", 0, "no other in-sync replica could lead", True)
    controlled.decisions.record(broker_kept(2, objection))
    (recorded,) = controlled.recorded(Kind.REFUSAL)
    assert recorded.cause == "it may not leave yet: t-0: no other in-sync replica could lead"
    assert (recorded.topic, recorded.partition, recorded.broker) == ("t", 0, 2)


def test_new_topics_and_what_changes_no_member_are_not_reported(controlled: Controlled) -> None:
    before = controlled.decisions._number
    controlled.create("new", 3)
    assert controlled.decisions._number == before


def test_of_thousands_of_elections_in_a_second_most_are_counted_into_one() -> None:
    controlled = Controlled(partitions=PER_SECOND_MAX + 100)
    controlled.stop(1)
    assert len(controlled.recorded(Kind.ELECTION)) == PER_SECOND_MAX
    controlled.now_ms = 1000
    assert controlled.last(Kind.ELECTION).facts == {"left_out": 100}
    assert controlled.elections()[0] == PER_SECOND_MAX + 100
