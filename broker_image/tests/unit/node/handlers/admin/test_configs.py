import asyncio

import pytest
import pytest_asyncio
from logfleet import BUILD_VERSION, __version__
from logfleet.config.description import NO_EFFECT, describe_broker
from logfleet.config.keys import BROKER_KEYS, TOPIC_KEYS
from logfleet.node.handlers.admin import configs as admin_configs
from logfleet.node.handlers.admin.topics import create_one
from logfleet.wire.encoded_rows import EncodedRows
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

pytestmark = pytest.mark.asyncio
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND = 0, 1, 2
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = IncrementalAlterConfigsRequest.AlterableConfig


@pytest_asyncio.fixture
async def topic(node):
    assert await create_one(node.controller_access, "t", 1, 1, {"retention.ms": "5"}) is None


async def describe(node, kind: int, name: str, *keys: str, version: int | None = None, **options):
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[wanted], **options)
    (result,) = (await node.ask(request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def alter(node, kind: int, name: str, *changes, validate_only: bool = False):
    resource = Resource(
        resource_type=kind,
        resource_name=name,
        configs=[Change(name=key, config_operation=op, value=value) for key, op, value in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = (await node.ask(request)).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    return ErrorCode(row.error_code).name, row.error_message


async def test_a_topic_is_described_at_every_version(node, topic, versions):
    for version in versions(DescribeConfigsRequest):
        result = await describe(node, TOPIC, "t", "retention.ms", version=version)
        (entry,) = result.configs
        assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "5", 1)
        assert (entry.read_only, entry.is_sensitive) == (False, False)
        if version >= 3:
            assert entry.config_type == 5


async def test_all_keys_are_described_and_their_documentation_names_those_without_effect(
    node, topic
):
    result = await describe(node, TOPIC, "t", include_documentation=True)
    texts = {entry.name: entry.documentation for entry in result.configs}
    assert len(texts) == len(TOPIC_KEYS) == 38
    assert texts["preallocate"].endswith(NO_EFFECT)
    assert "deleted" in texts["retention.ms"]
    result = await describe(node, BROKER, "1", include_documentation=True)
    shown = {key.name for key in BROKER_KEYS.values() if not key.is_shown_while_set}
    assert {entry.name for entry in result.configs} == shown | {BUILD_VERSION}
    result = await describe(node, BROKER, "1")
    assert {entry.documentation for entry in result.configs} == {None}


async def test_a_broker_describes_its_version_which_nobody_can_set(node):
    (entry,) = (await describe(node, BROKER, "1", BUILD_VERSION)).configs
    assert (entry.value, entry.read_only, entry.is_sensitive) == (__version__, True, False)
    refusal, _ = await alter(node, BROKER, "1", (BUILD_VERSION, SET, "9"))
    assert refusal == "INVALID_CONFIG"


async def test_synonyms_report_every_place_a_value_comes_from(start):
    node = await start(message_max_bytes="700000", log_retention_hours="24")
    await node.register()
    assert await create_one(node.controller_access, "t", 1, 1, {"max.message.bytes": "5"}) is None
    assert await alter(node, BROKER, "1", ("message.max.bytes", SET, "500000")) == ("NONE", None)
    assert await alter(node, BROKER, "", ("message.max.bytes", SET, "600000")) == ("NONE", None)
    result = await describe(node, TOPIC, "t", "max.message.bytes", include_synonyms=True)
    (entry,) = result.configs
    assert (entry.value, entry.config_source) == ("5", 1)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("max.message.bytes", "5", 1),
        ("message.max.bytes", "500000", 2),
        ("message.max.bytes", "600000", 3),
        ("message.max.bytes", "700000", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    result = await describe(node, BROKER, "1", "message.max.bytes", include_synonyms=True)
    (entry,) = result.configs
    assert (entry.value, entry.config_source) == ("500000", 2)
    result = await describe(node, BROKER, "1", "message.max.bytes")
    assert result.configs[0].synonyms == []


async def test_coarser_units_are_synonyms_only_beside_the_key_itself(start):
    """As ConfigHelper.configSynonyms does: what stands before the key's own name is dropped."""
    node = await start(log_retention_hours="24")
    await node.register()
    assert await create_one(node.controller_access, "t", 1, 1, {}) is None
    (entry,) = (await describe(node, TOPIC, "t", "retention.ms", include_synonyms=True)).configs
    assert (entry.value, entry.config_source, entry.synonyms) == ("86400000", 5, [])
    await alter(node, BROKER, "", ("log.retention.ms", SET, "77777"))
    (entry,) = (await describe(node, TOPIC, "t", "retention.ms", include_synonyms=True)).configs
    assert (entry.value, entry.config_source) == ("77777", 3)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("log.retention.ms", "77777", 3),
        ("log.retention.hours", "24", 4),
        ("log.retention.hours", "168", 5),
    ]


async def test_a_broker_shows_its_file_its_types_and_no_secret(start):
    node = await start(broker_rack="a", ssl_keystore_password="secret", my_plugin_key="x")
    await node.register()
    result = await describe(node, BROKER, "1", include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    rack = entries["broker.rack"]
    assert (rack.value, rack.config_source, rack.read_only) == ("a", 4, True)
    secret = entries["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
    assert secret.synonyms[0].value is None
    unknown = entries["my.plugin.key"]
    assert (unknown.value, unknown.is_sensitive, unknown.config_type) == (None, True, 0)
    assert entries["message.max.bytes"].read_only is False


async def test_the_cluster_shows_what_was_set_for_all_brokers(node):
    assert (await describe(node, BROKER, "")).configs == []
    await alter(node, BROKER, "", ("log.retention.ms", SET, "7"))
    (entry,) = (await describe(node, BROKER, "", include_synonyms=True)).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "7", 3)
    assert [(each.name, each.source) for each in entry.synonyms] == [("log.retention.ms", 3)]


@pytest.mark.parametrize(
    "kind, name, error, message",
    [
        (TOPIC, "nope", "UNKNOWN_TOPIC_OR_PARTITION", "does not exist"),
        (TOPIC, "a b", "INVALID_TOPIC_EXCEPTION", "other than ASCII"),
        (BROKER, "9", "INVALID_REQUEST", "expected 1 or empty string, but received 9"),
        (BROKER, "x", "INVALID_REQUEST", "Broker id must be an integer, but it is: x"),
        (LOGGER, "", "INVALID_REQUEST", "Broker id must not be empty"),
        (LOGGER, "9", "INVALID_REQUEST", "Unexpected broker id, expected 1, but received 9"),
        (16, "metrics", "INVALID_REQUEST", "Unsupported resource type 16"),
    ],
)
async def test_what_cannot_be_described_is_refused(node, kind, name, error, message):
    result = await describe(node, kind, name)
    assert ErrorCode(result.error_code).name == error
    assert message in result.error_message
    assert result.configs == []


def resources(*wanted):
    kind = DescribeConfigsRequest.DescribeConfigsResource
    return [
        kind(resource_type=each, resource_name=name, configuration_keys=keys)
        for each, name, keys in wanted
    ]


async def test_a_resource_that_is_named_twice_is_described_once_and_reported_twice(
    node, monkeypatch
):
    described = []

    def describe(layers):
        described.append(layers)
        return describe_broker(layers)

    monkeypatch.setattr(admin_configs, "describe_broker", describe)
    wanted = [(BROKER, "1", None), (TOPIC, "nope", None), (BROKER, "1", ["broker.id", "node.id"])]
    others = [(BROKER, "1", ["node.id", "broker.id", "node.id"])] * 100
    request = DescribeConfigsRequest(resources=resources(*wanted, *wanted, *others))
    results = (await node.ask(request)).results
    assert [(each.resource_type, each.resource_name) for each in results] == [
        (each.resource_type, each.resource_name) for each in request.resources
    ]
    assert results[:3] == results[3:6]
    assert len(results[0].configs) > 300
    assert results[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {tuple(row.name for row in each.configs) for each in results[5:]} == {
        ("broker.id", "node.id")
    }
    assert len(described) == 2


async def test_the_loop_does_other_things_while_much_is_described(node, monkeypatch):
    steps = [0]
    work: dict[tuple[str, int], int] = {}

    async def count_steps():
        while True:
            steps[0] += 1
            await asyncio.sleep(0)

    def counted(function):
        def call(self, *arguments):
            key = (function.__name__, steps[0])
            work[key] = work.get(key, 0) + 1
            return function(self, *arguments)

        return call

    monkeypatch.setattr(admin_configs, "_entry", counted(admin_configs._entry))
    monkeypatch.setattr(EncodedRows, "encode", counted(EncodedRows.encode))
    monkeypatch.setattr(EncodedRows, "add", counted(EncodedRows.add))
    groups = [(GROUP, f"g{number}", None) for number in range(40)]
    unknown = [(TOPIC, f"t{number}", None) for number in range(400)]
    request = DescribeConfigsRequest(
        resources=resources((BROKER, "1", None), *groups, *unknown, *unknown)
    )
    counting = asyncio.ensure_future(count_steps())
    results = (await node.ask(request)).results
    counting.cancel()
    entries = sum(len(each.configs) for each in results)
    assert entries > 1_000
    for name, total in (("_entry", entries), ("encode", 441), ("add", 841)):
        counts = [count for (function, _), count in work.items() if function == name]
        assert sum(counts) == total
        assert max(counts) <= admin_configs.CONFIGS_AT_ONCE


async def test_what_no_longer_fits_into_the_answer_is_refused(node, monkeypatch):
    monkeypatch.setattr(admin_configs, "REQUEST_MEMORY_BYTES_MAX", 30_000)
    request = DescribeConfigsRequest(resources=resources(*[(BROKER, "1", None)] * 4))
    first, second, *others = (await node.ask(request)).results
    assert first == second
    assert (first.error_code, len(first.configs) > 300) == (0, True)
    for each in others:
        assert (each.resource_type, each.resource_name, each.configs) == (BROKER, "1", [])
        assert (each.error_code, each.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "The answer would be too long: describe fewer resources at once.",
        )
    assert node.dispatcher.stats["DescribeConfigs"].errors == {ErrorCode.INVALID_REQUEST: 2}


async def test_topic_configs_change_step_by_step(node, topic):
    changes = [("segment.ms", SET, "9"), ("cleanup.policy", APPEND, "compact")]
    assert await alter(node, TOPIC, "t", *changes) == ("NONE", None)
    assert await alter(node, TOPIC, "t", ("retention.ms", DELETE, None)) == ("NONE", None)
    expected = {"segment.ms": "9", "cleanup.policy": "delete,compact"}
    assert node.image.topic("t").configs == expected
    answer = await alter(node, TOPIC, "t", ("segment.ms", SET, "10"), validate_only=True)
    assert answer == ("NONE", None)
    assert node.image.topic("t").configs == expected


async def test_a_change_is_answered_once_this_broker_obeys_it(node, topic):
    """Else records written after retention was lifted could still meet the old one."""
    node.applied.clear()
    node.applying.clear()
    asking = asyncio.ensure_future(alter(node, TOPIC, "t", ("retention.ms", SET, "-1")))
    await node.applying.wait()
    assert node.image.topic("t").configs == {"retention.ms": "-1"}
    assert not asking.done()
    node.applied.set()
    assert await asking == ("NONE", None)


async def test_a_resource_is_refused_for_itself(node, topic):
    def resource(kind: int, name: str, key: str, value: str) -> Resource:
        change = Change(name=key, config_operation=SET, value=value)
        return Resource(resource_type=kind, resource_name=name, configs=[change])

    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(TOPIC, "t", "retention.ms", "8"),
            resource(TOPIC, "nope", "retention.ms", "8"),
            resource(BROKER, "x", "message.max.bytes", "8"),
            resource(BROKER, "1", "node.id", "8"),
            resource(LOGGER, "1", "root", "chatty"),
            resource(BROKER, "", "message.max.bytes", "8"),
            resource(BROKER, "", "message.max.bytes", "9"),
        ]
    )
    for version in (0, 1):
        rows = (await node.ask(request, version)).responses
        assert [ErrorCode(row.error_code).name for row in rows] == [
            "NONE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "INVALID_CONFIG",
            "INVALID_REQUEST",
            "INVALID_REQUEST",
        ]
    assert node.image.topic("t").configs["retention.ms"] == "8"
    assert rows[5].error_message == "Each resource must appear at most once."


async def replace(node, kind: int, name: str, values, *, validate_only: bool = False, **options):
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterConfigsRequest.AlterableConfig(name=key, value=value)
            for key, value in values.items()
        ],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = (await node.ask(request, **options)).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    return ErrorCode(row.error_code).name, row.error_message


async def test_replacing_forgets_what_is_not_named(node, topic, versions):
    for version in versions(AlterConfigsRequest):
        given = {"segment.ms": str(1000 + version)}
        assert await replace(node, TOPIC, "t", given, version=version) == ("NONE", None)
        assert node.image.topic("t").configs == given
    assert await replace(node, TOPIC, "t", {}, validate_only=True) == ("NONE", None)
    assert node.image.topic("t").configs == given
    assert await replace(node, TOPIC, "t", {"nope": "1"}) == (
        "INVALID_CONFIG",
        "Unknown topic config name: nope",
    )
    assert await replace(node, TOPIC, "t", {"segment.ms": None}) == (
        "INVALID_REQUEST",
        "Null value not supported for : segment.ms",
    )
    assert await replace(node, TOPIC, "t", {}) == ("NONE", None)
    assert node.image.topic("t").configs == {}


async def test_replacing_a_brokers_values_leaves_the_others_theirs(node):
    for name in ("", "1"):
        assert await replace(node, BROKER, name, {"log.retention.ms": "7"}) == ("NONE", None)
    assert await replace(node, BROKER, "1", {"message.max.bytes": "9"}) == ("NONE", None)
    assert node.image.configs_of_broker(1).values == {"message.max.bytes": "9"}
    assert node.image.configs_of_broker(None).values == {"log.retention.ms": "7"}
    assert await replace(node, 99, "x", {}) == ("INVALID_REQUEST", "Unknown resource type 99")


async def test_a_group_has_configs_before_it_exists(node):
    assert await alter(node, GROUP, "g", ("share.isolation.level", SET, "x")) == (
        "INVALID_CONFIG",
        (
            "Invalid value x for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted"
        ),
    )
    key = ("share.isolation.level", SET, "read_committed")
    assert await alter(node, GROUP, "g", key, validate_only=True) == ("NONE", None)
    assert await alter(node, GROUP, "g", ("share.delivery.count.limit", SET, "7")) == ("NONE", None)
    result = await describe(node, GROUP, "g", include_synonyms=True)
    assert len(result.configs) == 21
    (entry,) = (each for each in result.configs if each.config_source == 8)
    assert (entry.name, entry.value) == ("share.delivery.count.limit", "7")
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("share.delivery.count.limit", "7", 8),
        ("group.share.delivery.count.limit", "5", 5),
    ]
    result = await describe(node, GROUP, "")
    assert (result.error_code, result.error_message) == (42, "Group name must not be empty")
