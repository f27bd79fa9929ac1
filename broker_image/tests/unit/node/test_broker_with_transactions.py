"""A whole broker whose cluster is at the feature level of transactions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from logfleet.controller.brokers import feature_level
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.node.broker import Broker
from logfleet.records.batch import write_crc
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    UpdateFeaturesRequest,
)

from broker_image.tests.unit.node.broker_rig import (
    ask_broker,
    config,
    create_topic,
    with_transactions,
)

pytestmark = pytest.mark.asyncio

APIS = {"AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions"}
KEYS = {API_BY_NAME[name].key for name in APIS}
TRANSACTION = 1


async def init(broker: Broker) -> InitProducerIdResponse:
    """The answer once there is a coordinator and a producer id, as a client gets it."""
    async with asyncio.timeout(10):
        while True:
            find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["a"])
            (found,) = (await ask_broker(broker, find, 4)).coordinators
            if found.error_code:
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                continue
            assert found.node_id == broker.config.node_id
            request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
            answer: InitProducerIdResponse = await ask_broker(broker, request, 5)
            if not answer.error_code:
                return answer
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def describe(broker: Broker) -> DescribeTransactionsResponse.TransactionState:
    """The transaction of "a", once its coordinator has loaded it."""
    request = DescribeTransactionsRequest(transactional_ids=["a"])
    async with asyncio.timeout(10):
        while True:
            answer: DescribeTransactionsResponse = await ask_broker(broker, request, 0)
            (row,) = answer.transaction_states
            if row.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return row


async def test_below_the_level_nothing_of_transactions_is_advertised(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, logfleet_feature_level_max="2")) as broker:
        answer = await ask_broker(broker, ApiVersionsRequest(), 0)
        assert not KEYS & {row.api_key for row in answer.api_keys}


async def test_a_producer_finds_its_coordinator_also_after_a_restart(tmp_path: Path) -> None:
    async with Broker(with_transactions(tmp_path)) as broker:
        named = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = await ask_broker(broker, named, 4)
        assert {row.api_key for row in answer.api_keys} >= KEYS
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels == {"logfleet.version": 3, "transaction.version": 2}

        given = await init(broker)
        assert given.producer_epoch == 0
        await create_topic(broker, "t")
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="a",
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[topic],
        )
        answer = await ask_broker(broker, add, 3)
        (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert row.partition_error_code == ErrorCode.NONE

    async with Broker(with_transactions(tmp_path)) as broker:
        described = await describe(broker)
        assert described.transaction_state == "Ongoing"
        assert described.producer_id == given.producer_id


async def test_a_producer_begins_its_transaction_with_its_first_batch(tmp_path: Path) -> None:
    """TV2: no request but Produce adds the partition."""
    async with Broker(with_transactions(tmp_path)) as broker:
        given = await init(broker)
        await create_topic(broker, "t", 2)
        stamp = ProducerStamp(given.producer_id, given.producer_epoch, 0, transactional=True)
        batch = build_batch([Record(None, b"v", 1_700_000_000_000)], producer=stamp)
        topic = ProduceRequest.TopicProduceData(
            name="t",
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=memoryview(batch))
                for index in (1, 0)
            ],
        )
        produce = ProduceRequest(
            transactional_id="a", acks=-1, timeout_ms=1_000, topic_data=[topic]
        )
        (answered,) = (await ask_broker(broker, produce, 12)).responses
        rows = [(row.index, row.error_code) for row in answered.partition_responses]
        assert rows == [(1, 0), (0, 0)]
        describe = DescribeTransactionsRequest(transactional_ids=["a"])
        (described,) = (await ask_broker(broker, describe, 0)).transaction_states
        assert described.transaction_state == "Ongoing"
        assert [(each.topic, sorted(each.partitions)) for each in described.topics] == [
            ("t", [0, 1])
        ]
        partition: Any = broker.rooms.partitions.get("t", 1)
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        produce.transactional_id = "another"
        (answered,) = (await ask_broker(broker, produce, 12)).responses
        assert {row.error_code for row in answered.partition_responses} == {0}, "sent again"
        batch[53:57] = (5).to_bytes(4, "big")
        batch[51:53] = (7).to_bytes(2, "big")
        write_crc(batch)
        (answered,) = (await ask_broker(broker, produce, 12)).responses
        assert {row.error_code for row in answered.partition_responses} == {
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }


async def test_transactions_are_served_as_soon_as_the_level_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade: the cluster was made by an earlier version; its clients are connected."""
    monkeypatch.setattr(feature_level, "LEVEL_MAX", TRANSACTIONS)
    async with Broker(config(tmp_path, logfleet_feature_level_max="2")) as broker:
        assert broker.image.features.level == TRANSACTIONS - 1
    async with Broker(with_transactions(tmp_path)) as broker:
        request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
        refused = await ask_broker(broker, request, 5)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="logfleet.version", max_version_level=TRANSACTIONS
        )
        raised = await ask_broker(
            broker, UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 2
        )
        assert raised.error_code == ErrorCode.NONE, raised.error_message
        assert (await init(broker)).producer_epoch == 0
