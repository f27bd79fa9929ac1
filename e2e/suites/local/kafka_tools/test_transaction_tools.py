"""Kafka's tools on transactions of a broker of ours: they list, describe, find what hangs, end it, and read what the broker wrote."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from logfleet.transactions.state import State

from e2e.compare import producers as p
from e2e.compare import requests as r
from e2e.compare.producers import Who
from e2e.compare.side import MadeTopic, Side
from e2e.harness.kafka import dump_log, run_tool
from e2e.harness.processes import Broker, Rig

MAIN = "org.apache.kafka.tools.TransactionsCommand"
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    # so that a batch can be written that no coordinator knows of
    "transaction.partition.verification.enable": "false",
}
NOT_ADDED = 11
"""Version of Produce: later ones add the partition to a transaction."""


class Tools:
    """kafka-transactions.sh on a broker."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap

    def run(self, *arguments: str) -> str:
        return run_tool(MAIN, ["--bootstrap-server", self._bootstrap, *arguments])

    def rows(self, *arguments: str) -> list[Mapping[str, str]]:
        """The table that the tool prints: by the names of its columns."""
        head, *rows = (line.split() for line in self.run(*arguments).splitlines() if line.strip())
        return [dict(zip(head, row, strict=False)) for row in rows]


def aborted_open_and_hanging(side: Side, topic: MadeTopic) -> tuple[Who, Who, Who]:
    """Producers: one whose transaction was aborted, one with a transaction, both in partition 0; one whose transaction in partition 1 nobody knows of."""
    ended, ongoing, hanging = (p.initialised(side, name) for name in ("ended", "open", "hanging"))
    p.filled(side, ended, topic, count=3)
    p.ended(side, ended, commit=False)
    p.filled(side, ongoing, topic, count=2)
    side.get(p.produce(hanging, topic, index=1), NOT_ADDED)
    return ended, ongoing, hanging


def log_of(broker: Broker, partition: str, suffix: str = ".log") -> Path:
    (found,) = Path(broker.config["log.dirs"]).glob(f"{partition}/*{suffix}")
    return found


@pytest.mark.timeout(600)
@pytest.mark.full
def test_kafkas_tools_find_a_transaction_that_hangs_end_it_and_read_what_the_broker_wrote(
    rig: Rig,
) -> None:
    broker = rig.broker(CONFIG)
    tools, side = Tools(broker), Side("ours", broker.port, "")
    side.begin("tools", 0)
    topic = side.topic(partitions=2)
    ended, ongoing, hanging = aborted_open_and_hanging(side, topic)

    states = {row["TransactionalId"]: row["TransactionState"] for row in tools.rows("list")}
    assert states[ended.id] == "CompleteAbort"
    assert states[ongoing.id] == "Ongoing"
    (described,) = tools.rows("describe", "--transactional-id", ongoing.id)
    assert described["ProducerId"] == str(ongoing.producer_id)
    assert described["TopicPartitions"] == f"{topic.name}-0"

    where = ["--topic", topic.name, "--partition", "1"]
    (producer,) = tools.rows("describe-producers", *where)
    assert producer["ProducerId"] == str(hanging.producer_id)
    assert producer["CurrentTransactionStartOffset"] == "0"
    minutes = ["--broker-id", "1", "--max-transaction-timeout", "1"]
    (found,) = tools.rows("find-hanging", *minutes)
    assert (found["Topic"], found["Partition"]) == (topic.name, "1")
    assert found["ProducerId"] == str(hanging.producer_id)
    tools.run("abort", *where, "--start-offset", "0")
    (producer,) = tools.rows("describe-producers", *where)
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert tools.rows("find-hanging", *minutes) == []

    tools.run("forceTerminateTransaction", "--transactionalId", ongoing.id)
    p.await_end(side, ongoing)
    (described,) = tools.rows("describe", "--transactional-id", ongoing.id)
    assert described["TransactionState"] in {"CompleteAbort", "Empty"}
    committed = side.get(r.list_offsets(topic, -1, isolation=1)).topics[0].partitions[0].offset
    assert committed == 7, "five records and two markers"
    side.close()
    broker.terminate()
    dumped = dump_log([log_of(broker, "__transaction_state-0")], "--transaction-log-decoder")
    for state in (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.COMPLETE_ABORT):
        assert f'"transactionStatus":{state.value},' in dumped
    index = dump_log([log_of(broker, f"{topic.name}-0", ".txnindex")])
    assert f"producerId: {ended.producer_id}" in index
    assert "firstOffset: 0 lastOffset: 3" in index
