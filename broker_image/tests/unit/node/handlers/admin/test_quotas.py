from typing import Any

import pytest
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterClientQuotasRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
)

pytestmark = pytest.mark.asyncio
USER = (("user", "ANONYMOUS"),)


def alteration(
    *operations: tuple[str, float | None],
    entity: tuple[tuple[str, str | None], ...] = USER,
    validate_only: bool = False,
) -> AlterClientQuotasRequest:
    kind = AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=t, entity_name=name) for t, name in entity],
        ops=[kind.OpData(key=k, value=v or 0.0, remove=v is None) for k, v in operations],
    )
    return kind(entries=[entry], validate_only=validate_only)


async def described(node, *components: tuple[str, int, str | None], version: int = 1) -> Any:
    kind = DescribeClientQuotasRequest
    answer = await node.ask(
        kind(
            components=[
                kind.ComponentData(entity_type=t, match_type=m, match=name)
                for t, m, name in components
            ]
        ),
        version,
    )
    if answer.error_code:
        return answer.error_code, answer.error_message, answer.entries
    return [
        (
            [(each.entity_type, each.entity_name) for each in entry.entity],
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


def _with_names(*names: str) -> AlterClientQuotasRequest:
    """A rate for each pair of a user and a client id of that name."""
    kind = AlterClientQuotasRequest
    entries = [
        kind.EntryData(
            entity=[
                kind.EntityData(entity_type="user", entity_name=name),
                kind.EntityData(entity_type="client-id", entity_name=name),
            ],
            ops=[kind.OpData(key="producer_byte_rate", value=1.0, remove=False)],
        )
        for name in names
    ]
    return kind(entries=entries, validate_only=False)


@pytest.mark.parametrize(
    "names",
    [[f"{'ü' * 800}{n}" for n in range(127)], [f"{'/' * 30_000}{n}" for n in range(4)]],
    ids=["many", "long"],
)
async def test_names_that_do_not_fit_into_one_transaction_are_written_in_several(node, names):
    answer = await node.ask(_with_names(*names), 1)
    assert {entry.error_code for entry in answer.entries} == {0}
    assert len(node.image.quotas) == len(names)


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(start, version):
    controller, other = await start(1), await start(2, stands=False)
    await controller.register()
    await other.register()
    answer = await other.ask(alteration(("producer_byte_rate", 5.0)), version)
    assert [(each.error_code, each.error_message) for each in answer.entries] == [(0, None)]
    for node in (controller, other):
        found = await described(node, version=version)
        assert found == [([("user", "ANONYMOUS")], {"producer_byte_rate": 5.0})]
    await other.ask(alteration(("producer_byte_rate", None)), version)
    assert await described(other) == []


async def test_what_is_only_validated_is_not_done(node):
    answer = await node.ask(alteration(("producer_byte_rate", 5.0), validate_only=True))
    assert answer.entries[0].error_code == ErrorCode.NONE
    refused = await node.ask(alteration(("producer_byte_rate", 0.0), validate_only=True))
    assert refused.entries[0].error_code == ErrorCode.INVALID_REQUEST
    assert await described(node) == []


async def test_a_bad_filter_is_refused(node):
    error, message, entries = await described(node, ("ip", 2, None), ("user", 2, None))
    assert (error, entries) == (ErrorCode.INVALID_REQUEST, None)
    assert "IP filter" in message


async def test_without_a_controller_all_is_refused(start):
    node = await start(1, stands=False, request_timeout_ms="50")
    answer = await node.ask(alteration(("producer_byte_rate", 5.0)))
    (entry,) = answer.entries
    assert entry.error_code == ErrorCode.NOT_CONTROLLER
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [
        ("user", "ANONYMOUS")
    ]


def creation(*topics: tuple[str, int], validate_only: bool = False) -> CreateTopicsRequest:
    kind = CreateTopicsRequest
    return kind(
        topics=[
            kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics
        ],
        timeout_ms=30_000,
        validate_only=validate_only,
    )


async def test_changes_of_topics_beyond_the_quota_are_refused(node):
    """A bucket of 11 x 0.001: everything after the first change, whatever checks fail before it."""
    await node.ask(alteration(("controller_mutation_rate", 0.001)))
    node.quotas.update(node.image.quotas)
    answer = await node.ask(creation(("a", 2), ("b", 1), ("a!", 1)), 7)
    errors = {each.name: (each.error_code, each.error_message) for each in answer.topics}
    assert errors["a"] == (ErrorCode.NONE, None)
    assert errors["b"] == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    assert errors["a!"][0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert 1_900_000 < answer.throttle_time_ms < 2_000_000
    kind = CreatePartitionsRequest
    growth = kind(
        topics=[kind.CreatePartitionsTopic(name="a", count=3, assignments=None)], timeout_ms=30_000
    )
    (grown,) = (await node.ask(growth, 3)).results
    assert grown.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deletion = DeleteTopicsRequest(topic_names=["a"], timeout_ms=30_000)
    (deleted,) = (await node.ask(deletion, 5)).responses
    assert deleted.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_older_clients_only_have_to_wait(node):
    await node.ask(alteration(("controller_mutation_rate", 1.0)))
    node.quotas.update(node.image.quotas)
    answer = await node.ask(creation(("a", 20)), 5)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert 8_000 < answer.throttle_time_ms <= 9_000
    kind = CreatePartitionsRequest
    growth = kind(
        topics=[kind.CreatePartitionsTopic(name="a", count=23, assignments=None)],
        timeout_ms=30_000,
    )
    grown = await node.ask(growth, 2)
    assert 11_000 < grown.throttle_time_ms <= 12_000
    deleted = await node.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=30_000), 4)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert 34_000 < deleted.throttle_time_ms <= 35_000
