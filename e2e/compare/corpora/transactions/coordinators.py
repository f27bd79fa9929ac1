"""Transaction coordinators: producers that begin, add, commit and abort, in every version and every state; lists of transactions.

Source: TransactionCoordinator, TransactionMetadata, TransactionStateManager, KafkaApis; KIP-98, KIP-360, KIP-588, KIP-664, KIP-890, KIP-994, KIP-1152.
"""

import itertools
from typing import Final

from logfleet.wire import messages as m

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.producers import UNKNOWN_PRODUCER, Who
from e2e.compare.side import Side

CORPUS: Final = Corpus("transactions")
CONTINUES_SINCE: Final = 3
"""Version of InitProducerId (KIP-360)."""
TV1_MAX: Final = 4
"""The last version of EndTxn whose requests say nothing of single transactions."""
TRANSACTION: Final = 1
"""Kind of a coordinator."""
TOO_SHORT_MS: Final = 1_000
"""For a transaction that nobody ends, long enough for its one record."""
BEGUN: Final = ("nothing", "committed", "aborted")
"""What came before the EndTxn that is tried."""


@CORPUS.versions("FindCoordinator")
def finding_coordinators(side: Side, version: int) -> None:
    names = [f"{side.prefix}id", f"{side.prefix}other", ""]
    for kind in (TRANSACTION, -1, 3) if version else (0,):
        for key in names:
            request = m.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=names)
            side.settle(request, version)


# --- InitProducerId


@CORPUS.versions("InitProducerId")
def initialising(side: Side, version: int) -> None:
    p.initialised(side, "id", version)
    p.initialised(side, "id", version)
    for timeout_ms in (0, -1, 900_001, 900_000, 1, 2**31 - 1):
        p.initialised(side, f"timeout{timeout_ms}", version, timeout_ms=timeout_ms)
    for name in ("", None):
        request = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        side.settle(request, version)
    side.ask(p.describe(*(f"{side.prefix}{name}" for name in ("id", "timeout900000", "none"))))


@CORPUS.versions("InitProducerId", only=range(CONTINUES_SINCE, 6))
def continuing(side: Side, version: int) -> None:
    """With the current pair, the one before, older ones, and those of others."""
    p.initialised(side, "id", version)
    second = p.initialised(side, "id", version)
    for who in (
        second,  # continues
        second,  # repeats that
        second.of_epoch(0),
        second.of_epoch(2),
        second.of_epoch(9),
        second._replace(producer_id=UNKNOWN_PRODUCER),
        second._replace(producer_id=-1),
        second.of_epoch(-1),
        second._replace(producer_id=-2),
    ):
        side.settle(p.init(who), version)
        side.ask(p.describe(who.id))
    nobody = Who(f"{side.prefix}nobody", UNKNOWN_PRODUCER, 0)
    side.settle(p.init(nobody), version)


@CORPUS.versions("InitProducerId")
def initialising_during_a_transaction(side: Side, version: int) -> None:
    topic = side.topic()
    first = p.initialised(side, "id", version)
    side.settle(p.add(first, {topic.name: [0]}), 3)
    second = p.again(side, first, version)
    side.ask(p.describe(first.id))
    side.settle(p.add(first, {topic.name: [0]}), 3)
    side.settle(p.end(first), min(version, TV1_MAX))
    if version >= CONTINUES_SINCE:
        side.settle(p.add(second, {topic.name: [0]}), 3)
        side.settle(p.init(second), version)
        side.ask(p.describe(first.id))
        side.settle(p.init(first), version)


@CORPUS.versions("InitProducerId", only=range(CONTINUES_SINCE, 6))
def zombies_that_continue(side: Side, version: int) -> None:
    """With epochs of long ago, while their successor has a transaction."""
    topic = side.topic()
    zombie = p.initialised(side, "id", version)
    for _ in range(3):
        successor = p.again(side, zombie)
    side.settle(p.add(successor, {topic.name: [0]}), 3)
    side.settle(p.init(zombie), version)
    side.ask(p.describe(zombie.id))


# --- AddPartitionsToTxn, AddOffsetsToTxn


@CORPUS.versions("AddPartitionsToTxn", only=range(4))
def adding(side: Side, version: int) -> None:
    topic = side.topic(partitions=2)
    old = p.initialised(side, "id")
    who = p.again(side, old)
    wanted = {topic.name: [0]}
    for each in (
        old,
        who.of_epoch(9),
        who._replace(producer_id=UNKNOWN_PRODUCER),
        who._replace(id=f"{side.prefix}none"),
        who._replace(id=""),
    ):
        side.settle(p.add(each, wanted), version)
    side.settle(
        p.add(who, {topic.name: [0, 9], f"{side.prefix}none": [0], "no name!": [0]}), version
    )
    side.settle(p.add(who, {"__consumer_offsets": [0], topic.name: [0]}), version)
    side.ask(p.describe(who.id))
    several: list[p.Partitions] = [
        {},
        {topic.name: []},
        {topic.name: [0, 1]},
        wanted,
        {topic.name: [0, 0]},
    ]
    for partitions in several:
        side.settle(p.add(who, partitions), version)
        side.ask(p.describe(who.id))
    p.ended(side, who, TV1_MAX, commit=False)
    side.settle(p.add(who, wanted), version)
    side.ask(p.describe(who.id))


@CORPUS.versions("AddOffsetsToTxn")
def adding_groups(side: Side, version: int) -> None:
    group = f"{side.prefix}group"
    old = p.initialised(side, "id")
    who = p.again(side, old)
    for each in (
        old,
        who._replace(producer_id=UNKNOWN_PRODUCER),
        who._replace(id=f"{side.prefix}none"),
        who._replace(id=""),
        who,
        who,
    ):
        side.settle(p.add_group(each, group), version)
        side.ask(p.describe(who.id))
    side.settle(p.add_group(who, ""), version)
    p.ended(side, who, TV1_MAX)


@CORPUS.versions("AddPartitionsToTxn", only=(4, 5))
def adding_as_brokers_do(side: Side, version: int) -> None:
    topic = side.topic(partitions=3).name
    one, other = p.initialised(side, "one"), p.initialised(side, "other")
    unknown = one._replace(id=f"{side.prefix}none")
    nobody = one._replace(producer_id=UNKNOWN_PRODUCER)
    for asked in (
        [
            p.of_broker(one, {topic: [0]}, verify=True),
            p.of_broker(other, {topic: [0, 1]}),
            p.of_broker(unknown, {topic: [0]}, verify=True),
            p.of_broker(unknown._replace(id=f"{side.prefix}nobody"), {topic: [1]}),
        ],
        [p.of_broker(other, {topic: [0, 1, 2]}, verify=True)],
        [p.of_broker(one.of_epoch(7), {topic: [0]})],
        [p.of_broker(other.of_epoch(7), {topic: [0]}, verify=True)],
        [p.of_broker(nobody, {topic: [0]}, verify=True)],
        [p.of_broker(nobody, {topic: [0]})],
        [p.of_broker(other, {topic: [0, 77]})],
        [p.of_broker(other, {topic: [0, 77]}, verify=True)],
        [p.of_broker(other, {f"{side.prefix}none": [0], topic: [0]})],
        [p.of_broker(Who("", 1, 0), {topic: [0]})],
        [p.of_broker(Who("", 1, 0), {topic: [0]}, verify=True)],
        [p.of_broker(one, {"__consumer_offsets": [0]})],
        [p.of_broker(one, {})],
        [p.of_broker(other, {}, verify=True)],
    ):
        side.settle(m.AddPartitionsToTxnRequest(transactions=asked), version)
    side.ask(p.describe(one.id, other.id))
    p.ended(side, one)
    following = p.ended(side, other, commit=False)
    for who in (other, following):
        for verify in (True, False):
            asked = [p.of_broker(who, {topic: [0]}, verify=verify)]
            side.settle(m.AddPartitionsToTxnRequest(transactions=asked), version)
    side.ask(p.describe(one.id, other.id))


# --- EndTxn


@CORPUS.versions("EndTxn")
def ending(side: Side, version: int) -> None:
    """Every end after every other end, by the producer of the last transaction and of the next."""
    topic = side.topic().name
    for begun, commit, is_next in itertools.product(BEGUN, (True, False), (False, True)):
        if is_next and begun == "nothing":
            continue
        who = following = p.initialised(side, f"{begun}-{commit}-{is_next}")
        if begun != "nothing":
            side.settle(p.add(who, {topic: [0]}), 3)
            following = p.ended(side, who, version, commit=begun == "committed")
        last = p.ended(side, following if is_next else who, version, commit=commit)
        for again in (commit, not commit):
            last = p.ended(side, last, version, commit=again)


@CORPUS.versions("EndTxn")
def ending_by_others(side: Side, version: int) -> None:
    topic = side.topic().name
    who = p.initialised(side, "id")
    side.settle(p.add(who, {topic: [0]}), 3)
    for each in (
        who.of_epoch(5),
        who.of_epoch(-1),
        who._replace(producer_id=UNKNOWN_PRODUCER),
        who._replace(id=f"{side.prefix}none"),
        who._replace(id=""),
    ):
        side.settle(p.end(each), version)
    side.ask(p.describe(who.id))
    p.ended(side, who, version)
    fresh = p.again(side, who)
    for each, commit in itertools.product((who, fresh), (True, False)):
        p.ended(side, each, version, commit=commit)


@CORPUS.versions("EndTxn")
def ending_after_another_protocol(side: Side, version: int) -> None:
    """The last transaction was ended by a client of the other protocol."""
    topic = side.topic().name
    other = 5 if version <= TV1_MAX else TV1_MAX
    for begun, commit in itertools.product((True, False), (True, False)):
        who = p.initialised(side, f"{begun}-{commit}")
        side.settle(p.add(who, {topic: [0]}), 3)
        following = p.ended(side, who, other, commit=begun)
        for each in (who, following):
            p.ended(side, each, version, commit=commit)


# --- time


@CORPUS.versions("EndTxn", only=(2, TV1_MAX, 5))
def transactions_that_take_too_long(side: Side, version: int) -> None:
    """Aborted by the coordinator, their producers fenced: what those are told afterwards, and those that continue."""
    topic = side.topic()
    is_added_with_records = version > TV1_MAX
    for commit in (True, False):
        who = p.initialised(side, f"id-{commit}", timeout_ms=TOO_SHORT_MS)
        if not is_added_with_records:
            side.settle(p.add(who, {topic.name: [0]}), 3)
        produced = 12 if is_added_with_records else 11
        side.settle(p.produce(who, topic), produced)
        p.await_state(side, who, "CompleteAbort")
        side.ask(p.describe(who.id))
        side.ask(r.list_offsets(topic, -1, isolation=1))
        side.ask(p.describe_producers(topic.name, 0))
        side.settle(p.produce(who, topic, 1), produced)
        side.settle(p.add(who, {topic.name: [0]}), 3)
        p.ended(side, who, version, commit=commit)
        for epoch in (who.epoch, who.epoch + 1):
            side.settle(p.init(who.of_epoch(epoch)), 5)
        p.again(side, who)
        side.ask(p.describe(who.id))


# --- lists


@CORPUS.versions("ListTransactions")
def listing(side: Side, version: int) -> None:
    topic = side.topic().name
    empty, ongoing, ended = (p.initialised(side, name) for name in ("empty", "ongoing", "ended"))
    for who in (ongoing, ended):
        side.settle(p.add(who, {topic: [0]}), 3)
    p.ended(side, ended)
    kind = m.ListTransactionsRequest
    states: tuple[list[str], ...] = (
        [],
        ["Ongoing"],
        ["ongoing"],
        ["Foo", "Empty", ""],
        ["Foo"],
        ["Dead", "PrepareEpochFence"],
        ["CompleteCommit", "Ongoing"],
    )
    for each in states:
        side.ask(kind(state_filters=each), version)
    for ids in ([], [ongoing.producer_id], [empty.producer_id, UNKNOWN_PRODUCER], [-1]):
        side.ask(kind(producer_id_filters=ids), version)
        side.ask(kind(producer_id_filters=ids, state_filters=["Ongoing"]), version)
    for duration in (-2, -1, 10**9) if version >= 1 else ():
        side.ask(kind(duration_filter=duration), version)
    own = side.prefix
    patterns = (
        f"{own}e.*",
        f"{own}e",
        ".*ongoing",
        f"{own}(empty|ended)",
        f"{own}[a-m]+",
        "",
        None,
    )
    for pattern in (*patterns, "(", "*", "[", "(?<=x)e") if version >= 2 else ():
        side.ask(kind(transactional_id_pattern=pattern), version)


@CORPUS.case
def describing(side: Side) -> None:
    topic = side.topic(partitions=3)
    other = side.topic("other")
    who = p.initialised(side, "id", timeout_ms=12_345)
    side.settle(p.add(who, {topic.name: [2, 0], other.name: [0]}), 3)
    side.settle(p.add_group(who, "g"))
    for ids in ([who.id], ["", who.id], [f"{side.prefix}none"], [], [who.id, who.id]):
        side.ask(p.describe(*ids))
    p.ended(side, who, commit=False)


@CORPUS.case
def topics_that_are_deleted(side: Side) -> None:
    """A transaction ends all the same."""
    topic, other = side.topic(), side.topic("other")
    who = p.initialised(side, "id")
    side.settle(p.add(who, {topic.name: [0], other.name: [0]}), 3)
    side.get(r.delete(topic.name))
    side.await_changes()
    p.ended(side, who)
    side.ask(r.list_offsets(other, -1, isolation=1))
