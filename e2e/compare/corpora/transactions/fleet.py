"""Transactions in a fleet of three: over partitions that each broker leads, while a coordinator moves, and while a marker has nobody to take it.

Every transactional id has its coordinator where the case wants it: partition N of `__transaction_state` is led by broker N + 1. Broker 3 is stopped
later, and 1 takes over what it coordinates, also what only loading shows: epochs that are used up.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from logfleet.coordinators.partition import partition_for
from logfleet.records.record import Record, build_batch
from logfleet.transactions.records import TransactionRecord, encode
from logfleet.transactions.state import State, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire import messages as m

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.corpora.fleet_corpus import FleetCorpus
from e2e.compare.fleet_side import NODES, FleetSide, at
from e2e.compare.producers import Who
from e2e.compare.side import CaseBroken, MadeTopic
from e2e.harness.wire_connection import TRY_AGAIN, WireConnection, error_codes

ALL_THERE: Final = FleetCorpus("fleet")
ONE_AWAY: Final = FleetCorpus("fleet")
STATES: Final = "__transaction_state"
LED_BY_EACH: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
AWAY: Final = 3
"""The broker that is stopped, and its successor as a coordinator."""
SUCCESSOR: Final = 1
ADMIN: Final = "__admin_client"
"""The client id with which Kafka lets records be written to its own topics."""
FIRST_WRITTEN: Final = 900_000
"""Producer id of the first transaction that is written as a record: far from those that brokers give."""
EPOCHS: Final = (32_764, 32_765, 32_766)
"""Near the last one that a client gets, 32766."""
WRITTEN: Final = tuple(
    (f"written-{epoch}-{way}", epoch)
    for epoch in EPOCHS
    for way in ("tv1", "tv2", "init", "continued")
)
BEGUN_FROM_MS: Final = r.T0 + 1_800_000
"""Times of this run, also those before the case."""
KEPT: Final = ("committed", "aborted", "left")
"""Transactions that are begun before their coordinator goes."""


def make_states(side: FleetSide) -> None:
    """The coordinators' topic, led by each in turn."""
    side.keep(STATES, LED_BY_EACH, {"cleanup.policy": "compact", "min.insync.replicas": "1"})


def id_at(node: int, name: str) -> str:
    """A transactional id of that name whose coordinator is that broker."""
    ids = (f"{name}-{number}" for number in itertools.count())
    return next(each for each in ids if partition_for(each, len(NODES)) == node - 1)


def initialised(side: FleetSide, node: int, name: str, *, version: int = 5) -> Who:
    """A producer whose coordinator is that broker."""
    who = Who(id_at(node, f"{side.prefix}{name}"))
    given = side.settle(p.init(who), version, on=at(node))
    return Who(who.id, given.producer_id, given.producer_epoch)


def state_of(side: FleetSide, node: int, who: Who) -> str:
    (row,) = side.get_of(node, p.describe(who.id)).transaction_states
    return str(row.transaction_state)


def await_end(side: FleetSide, node: int, who: Who) -> None:
    for _ in side.patiently(f"the end of the transaction of {who}"):
        if not state_of(side, node, who).startswith("Prepare"):
            return


def ended(side: FleetSide, node: int, who: Who, version: int = 5, *, commit: bool = True) -> Who:
    """As `producers.ended`, at that coordinator."""
    answer = side.settle(p.end(who, commit=commit), version, on=at(node))
    await_end(side, node, who)
    side.ask(p.describe(who.id), on=at(node))
    if version < p.TV2_SINCE or answer.error_code:
        return who
    return Who(who.id, answer.producer_id, answer.producer_epoch)


def read_committed(side: FleetSide, topic: MadeTopic, end_offset: int, index: int) -> None:
    """At every broker: followers have an end of their own for readers of committed records."""
    nodes = sorted(side.alive)
    side.await_read(topic, end_offset, *nodes, index=index)
    for node in nodes:
        for isolation in (0, 1):
            side.ask(r.list_offsets(topic, -1, index=index, isolation=isolation), on=at(node))
            row = r.fetch_row(0, index=index)
            side.ask(r.fetch_rows(topic, [row], isolation_level=isolation), 13, on=at(node))
        side.ask(p.describe_producers(topic.name, index), on=at(node))


# --- all are there


@ALL_THERE.case
def transactions_asked_of_every_broker(side: FleetSide) -> None:
    """Who is no coordinator says so."""
    topic = side.replicated(LED_BY_EACH)
    producers = [initialised(side, node, f"at{node}") for node in NODES]
    ids = [who.id for who in producers]
    for node, who in itertools.product(NODES, producers):
        for version in (1, 4, 6):
            request = m.FindCoordinatorRequest(key=who.id, key_type=1, coordinator_keys=ids)
            side.ask(request, version, on=at(node))
        if who.id == ids[node - 1]:
            continue
        asked = m.AddPartitionsToTxnRequest(transactions=[p.of_broker(who, {topic.name: [0]})])
        for refused, versions in (
            (p.init(Who(who.id)), (0, 3, 5)),
            (p.add(who, {topic.name: [0]}), (0, 3)),
            (asked, (4, 5)),
            (p.add_group(who, "g"), (0, 4)),
            (p.end(who), (0, 4, 5)),
        ):
            for version in versions:
                side.ask(refused, version, on=at(node))
    for node in NODES:
        side.ask(p.describe(*ids), on=at(node))
        side.ask(m.ListTransactionsRequest(), on=at(node))


@ALL_THERE.versions("EndTxn", only=(4, 5))
def transactions_over_all_leaders(side: FleetSide, version: int) -> None:
    topic = side.replicated(LED_BY_EACH)
    produced = 11 if version < p.TV2_SINCE else 13
    offset = 0
    for node, commit in itertools.product(NODES, (True, False)):
        who = initialised(side, node, f"at{node}-{commit}")
        for index in range(len(NODES)):
            if version < p.TV2_SINCE:
                side.settle(p.add(who, {topic.name: [index]}), 3, on=at(node))
            request = p.produce(who, topic, index=index, count=2)
            side.settle(request, produced, on=at(index + 1))
        side.ask(p.describe(who.id), on=at(node))
        ended(side, node, who, version, commit=commit)
        offset += 3
    for index in range(len(NODES)):
        read_committed(side, topic, offset, index)


@ALL_THERE.case
def transactions_that_followers_know(side: FleetSide) -> None:
    """In progress: the end for readers of committed records stands, at followers, too."""
    topic = side.replicated(LED_BY_EACH)
    who = initialised(side, 2, "id")
    for index in range(len(NODES)):
        side.fill(topic, r.batch(2), leader=index + 1, index=index)
        side.settle(p.produce(who, topic, index=index, count=3), 13, on=at(index + 1))
        read_committed(side, topic, 5, index)
    for node in NODES:
        marker = p.marker(who, {topic.name: [0, 1, 2]}, commit=False, coordinator_epoch=0)
        side.ask(m.WriteTxnMarkersRequest(markers=[marker]), on=at(node))
    for index in range(len(NODES)):
        read_committed(side, topic, 6, index)
    ended(side, 2, who)


# --- the coordinator goes


def kept_id(name: str) -> str:
    return id_at(AWAY, f"kept-{name}")


def begin_kept(side: FleetSide) -> None:
    """Before broker 3 stops: transactions in progress that it coordinates, and such as nobody has begun, as records."""
    # markers have the brokers' times, so these topics are not among those that other cases read
    ledger = side.keep("ledger", LED_BY_EACH, {"min.insync.replicas": "2"})
    held = side.keep("held", ((SUCCESSOR, AWAY),), {"min.insync.replicas": "2"})
    for name in (*KEPT, "held"):
        given = _lasting(side, AWAY, p.init(Who(kept_id(name))), 5)
        who = Who(kept_id(name), given.producer_id, given.producer_epoch)
        if given.error_code:
            raise CaseBroken(f"{side.product}: {who} was not initialised: {given}")
        wanted = {held.name: [0]} if name == "held" else {ledger.name: [0, 1, 2]}
        _lasting(side, AWAY, p.add(who, wanted), 3)
        if name != "held":
            for index in range(len(NODES)):
                _lasting(side, index + 1, p.produce(who, ledger, index=index), 12)
    for number, (name, epoch) in enumerate(WRITTEN):
        written = Transaction(
            producer_id=FIRST_WRITTEN + number,
            epoch=ProducerEpoch(epoch),
            timeout_ms=r.SESSION_MS,
            state=State.EMPTY,
            last_update_ms=r.T0,
        )
        _write_state(side, kept_id(name), written)


def _lasting(side: FleetSide, node: int, request: msgspec.Struct, version: int) -> Any:
    """The first answer without an error that passes, such as that of a coordinator which is loading."""
    for _ in side.patiently(f"an answer that lasts to {request!r:.200}"):
        answer = side.get_of(node, request, version)
        if TRY_AGAIN.isdisjoint(error_codes(answer)):
            return answer
    raise AssertionError


def _write_state(side: FleetSide, transactional_id: str, written: Transaction) -> None:
    key, value = encode(TransactionRecord(transactional_id, written))
    sent = bytes(build_batch([Record(key, value, r.T0)]))
    request = r.produce(side.lasting[STATES], sent, index=AWAY - 1)
    with WireConnection(side.ports[AWAY], ADMIN) as connection:
        answer = connection.call(request, 13)
    if answer.responses[0].partition_responses[0].error_code:
        raise CaseBroken(f"{side.product} did not take a record of {STATES}: {answer}")


def await_kept(side: FleetSide) -> None:
    """Return when the successor coordinates what the broker that is gone did."""
    side.await_state(side.lasting[STATES], [1, 2, SUCCESSOR])
    for _ in side.patiently("the coordinator to be loaded"):
        if state_of(side, SUCCESSOR, Who(kept_id("left"))) == "Ongoing":
            return


def found(side: FleetSide, name: str) -> Who:
    """Who that is by now, as its coordinator says; compared."""
    (row,) = side.ask(p.describe(kept_id(name)), on=at(SUCCESSOR)).transaction_states
    return Who(row.transactional_id, row.producer_id, row.producer_epoch)


@ONE_AWAY.case
def transactions_go_on_with_one_away(side: FleetSide) -> None:
    side.count_as_now(BEGUN_FROM_MS)
    topic = side.lasting["ledger"]
    for node in sorted(side.alive):
        for name in KEPT:
            side.ask(p.describe(kept_id(name)), on=at(node))
    for name, version in zip(KEPT, (5, 4, 5), strict=True):
        who = found(side, name)
        side.settle(p.produce(who, topic, 1), 13)
        if name != "left":
            ended(side, SUCCESSOR, who, version, commit=name == "committed")
    for node, index in itertools.product(sorted(side.alive), range(len(NODES))):
        side.ask(p.describe_producers(topic.name, index), on=at(node))
    fresh = side.settle(p.init(Who(kept_id("left"))), on=at(SUCCESSOR))
    side.note("epoch of the next producer", fresh.producer_epoch)
    found(side, "left")


@ONE_AWAY.case
def transactions_whose_marker_nobody_takes(side: FleetSide) -> None:
    """Decided, and so for as long as a partition of it has too few replicas in sync: what every request is answered meanwhile."""
    side.count_as_now(BEGUN_FROM_MS)
    ledger = side.lasting["ledger"]
    who = found(side, "held")
    following = side.ask(p.end(who), 5, on=at(SUCCESSOR))
    later = Who(who.id, following.producer_id, following.producer_epoch)
    found(side, "held")
    for each in (who, later, who.of_epoch(9), who._replace(producer_id=p.UNKNOWN_PRODUCER)):
        _ask_held(side, each, ledger)
    for version, request in ((3, p.produce(who, ledger)), (12, p.produce(later, ledger))):
        side.ask(request, version)
    for states in (["PrepareCommit"], ["Ongoing"], []):
        listed = m.ListTransactionsRequest(state_filters=states, transactional_id_pattern="kept-.*")
        side.ask(listed, on=at(SUCCESSOR))
    found(side, "held")
    if (state := state_of(side, SUCCESSOR, who)) != "PrepareCommit":
        raise CaseBroken(f"{side.product}: {who} was meant to wait for its marker, and is {state}")


def _ask_held(side: FleetSide, who: Who, topic: MadeTopic) -> None:
    asked: list[tuple[m.InitProducerIdRequest | m.AddPartitionsToTxnRequest, Sequence[int]]] = [
        (p.init(Who(who.id)), range(6)),
        (p.init(who), (3, 5)),
        (p.add(who, {topic.name: [0]}), range(4)),
    ]
    for request, versions in asked:
        for version in versions:
            side.ask(request, version, on=at(SUCCESSOR))
    for verify, version in itertools.product((True, False), (4, 5)):
        added = p.of_broker(who, {topic.name: [0]}, verify=verify)
        request = m.AddPartitionsToTxnRequest(transactions=[added])
        side.ask(request, version, on=at(SUCCESSOR))
    for version in range(5):
        side.ask(p.add_group(who, "g"), version, on=at(SUCCESSOR))
    for version, commit in itertools.product(range(6), (True, False)):
        side.ask(p.end(who, commit=commit), version, on=at(SUCCESSOR))


@ONE_AWAY.case
def epochs_that_are_used_up(side: FleetSide) -> None:
    """By commits and aborts of both protocols, and by producers that begin and go on."""
    topic = side.lasting["ledger"]
    for name, _ in WRITTEN:
        who = found(side, name)
        way = name.rpartition("-")[2]
        version = 4 if way == "tv1" else 5
        for number in range(4):
            if way in {"init", "continued"}:
                asked = who if way == "continued" else Who(who.id)
                answer = side.settle(p.init(asked), 5, on=at(SUCCESSOR))
                who = Who(who.id, answer.producer_id, answer.producer_epoch)
                side.settle(p.init(asked), 5, on=at(SUCCESSOR))
            side.settle(p.add(who, {topic.name: [0, 1]}), 3, on=at(SUCCESSOR))
            last, who = who, ended(side, SUCCESSOR, who, version, commit=bool(number % 2))
            side.settle(p.end(last, commit=bool(number % 2)), version, on=at(SUCCESSOR))
        side.ask(p.describe_producers(topic.name, 0))
