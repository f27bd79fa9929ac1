"""A whole broker in this process: its configuration, and one request to it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
from logfleet.config.broker import BrokerConfig, broker_config
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.node.broker import Broker
from logfleet.types import LeaderEpoch
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.frame import decode_response, encode_request
from logfleet.wire.messages import CreateTopicsRequest


def config(path: Path, **given: str) -> BrokerConfig:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(path / "data"),
        "logfleet.admin.listener": "127.0.0.1:0",
        **{key.replace("_", "."): value for key, value in given.items()},
    }
    return broker_config(properties)


def with_transactions(path: Path, **given: str) -> BrokerConfig:
    """Its broker makes a cluster at the feature level of transactions."""
    made = config(path, transaction_state_log_num_partitions="1", **given)
    return msgspec.structs.replace(made, logfleet_feature_level_max=TRANSACTIONS)


ELSEWHERE = {"logfleet.metadata.store": "etcd", "logfleet.etcd.endpoints": "h:1", "node.id": "1"}
"""For a broker whose metadata is not beside its data; the test replaces `open_store`."""


async def ask(port: int, request: Any, version: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(b"".join(encode_request(request, version, 1, "test")))  # type: ignore[arg-type]
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
    api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
    return decode_response(api, version, memoryview(frame))[1]


async def ask_broker(broker: Broker, request: Any, version: int) -> Any:
    (listener,) = broker.opened.listeners.all
    return await ask(listener.port, request, version)


async def create_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    before = broker.image.revision
    answer = await ask_broker(broker, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer
    await broker.rooms.hosting.local.until_applied(broker.image.revision, before)


def registered_again(broker: Broker) -> None:
    """The broker may lead what it led before, as if elected again in new leader epochs."""
    for replica in broker.rooms.partitions:
        replica.led_epoch = LeaderEpoch(-1)
    broker.rooms.hosting.local.registered(broker.image.brokers[1].epoch)
