from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner
from logfleet.cli.apply import InvalidDocuments, applicable_documents, apply_all, parse
from logfleet.cli.documents import Document
from logfleet.cli.main import cli
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import Report
from logfleet.client.cluster import Client
from logfleet.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker


def topic(name: str = "flights", cluster: str = "fleet", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": cluster}, **spec},
    }


def cluster(config: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "fleet"},
        "spec": {
            "pools": [{"name": "main", "replicas": 1, "storage": {"size": "1Gi"}}],
            "metadata": {"managed": {"replicas": 1}},
            "config": config,
        },
    }


def documents(*contents: object) -> list[Document]:
    return [Document(f"f{number}", content) for number, content in enumerate(contents, 1)]


def lines_of(*contents: object) -> tuple[str, ...]:
    with pytest.raises(InvalidDocuments) as wrong:
        parse(documents(*contents))
    return wrong.value.lines


def test_each_wrong_document_is_told_in_one_line() -> None:
    first, second, third = lines_of(
        topic(partitions=0), topic("good"), {**topic(), "kind": "Topics"}, "text"
    )
    assert first == "f1 (Topic/flights): spec.partitions: is 0, write a number from 1 to 100000"
    assert second == "f3 (Topics/flights): kind: is 'Topics', write one of Cluster, Topic"
    assert third == "f4: a resource is a mapping with apiVersion, kind, spec"


@pytest.mark.parametrize(
    "contents, words",
    [
        ([], "there is no document to apply"),
        ([topic(), topic()], "f2: Topic/flights stands in f1 already, leave one out"),
        ([topic("a", topicName="x"), topic("b", topicName="x")], "Topic/b: topic x belongs to"),
        ([topic("a"), topic("b", "other")], "for the Clusters fleet, other"),
        ([{**topic(), "kind": ["x"]}], "kind: is ['x']"),
        ([{**topic(), "metadata": 3}], "metadata"),
        ([topic(config={"retention.ms": 1.5})], "write other values in quotes"),
    ],
)
def test_documents_that_cannot_be_applied(contents: list[object], words: str) -> None:
    (line,) = lines_of(*contents)
    assert words in line


def test_kinds_that_are_not_for_this_command_are_skipped_and_named() -> None:
    rebalance = {**topic("even-out"), "kind": "Rebalance"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    misspelt = {**topic(), "kind": "Topics"}
    taken, skipped = applicable_documents(
        documents(rebalance, topic(), config_map, misspelt, deployment, "text", {"kind": "Topic"})
    )
    assert [each.where for each in taken] == ["f2", "f4", "f6", "f7"]
    assert [line.partition(",")[0] for line in skipped] == [
        "f1 (Rebalance/even-out): skipped",
        "f3 (ConfigMap/c): skipped",
        "f5 (Deployment/d): skipped",
    ]


def test_a_wrong_version_of_ours_is_no_kind_of_others() -> None:
    document = {**topic(), "apiVersion": "logfleet.dev/v1"}
    assert applicable_documents(documents(document)) == (documents(document), [])


def test_nothing_is_applied_if_one_document_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: Topic\n---\nkind: User\n")
    result = CliRunner().invoke(cli, ["apply", "-f", str(path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.partition(" (")[0] for line in result.stderr.splitlines()] == [
        f"Error: {path} document 1",
        f"Error: {path} document 2",
    ]


# --- against a broker of a few lines


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"flights": 3}).running() as running:
        set_configs(running, {})
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse()
        running.answers[IncrementalAlterConfigsRequest] = lambda _: IncrementalAlterConfigsResponse(
            responses=[row]
        )
        grown = CreatePartitionsResponse.CreatePartitionsTopicResult(name="flights")
        running.answers[CreatePartitionsRequest] = lambda _: CreatePartitionsResponse(
            results=[grown]
        )
        yield running


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap, timeout_ms=5_000) as client:
        yield client


def set_configs(broker: FakeBroker, config: dict[str, str], source: int = 1) -> None:
    rows = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=key, value=value, config_source=source
        )
        for key, value in config.items()
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(configs=rows)
    broker.answers[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse(results=[result])


async def applied(client: Client, *contents: object, dry_run: bool = False) -> list[object]:
    resources = parse(documents(*contents))
    report = Report(Output(), dry_run=dry_run)
    await apply_all(resources, report, client, dry_run=dry_run)
    assert report.failed == any("error" in row for row in report.rows)
    return [row.get("error", row["result"]) for row in report.rows]


@pytest.mark.asyncio
async def test_what_is_as_written_stays_untouched(broker: FakeBroker, client: Client) -> None:
    assert await applied(client, topic(partitions=3)) == ["unchanged"]
    assert not broker.of(CreateTopicsRequest)
    assert not broker.of(IncrementalAlterConfigsRequest)


@pytest.mark.asyncio
async def test_another_spelling_of_what_brokers_show_is_no_difference(
    broker: FakeBroker, client: Client
) -> None:
    set_configs(
        broker, {"cleanup.policy": "compact,delete", "preallocate": "true", "retention.ms": "7"}
    )
    spelled = {"cleanup.policy": "compact, delete", "preallocate": "True", "retention.ms": "007"}
    assert await applied(client, topic(partitions=3, config=spelled)) == ["unchanged"]
    assert not broker.of(IncrementalAlterConfigsRequest)


@pytest.mark.asyncio
async def test_another_spelling_of_a_brokers_settings_is_no_difference(
    broker: FakeBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {"log.cleanup.policy": "compact,delete", "log.preallocate": "true"}
    listener_key = "listener.name.internal.max.connections"
    set_configs(broker, {**shown, listener_key: "7"}, source=4)
    itself = DescribeClusterResponse.DescribeClusterBroker(
        broker_id=1, host="127.0.0.1", port=broker.port
    )
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(brokers=[itself])
    spelled = {"log.cleanup.policy": "compact, delete", "log.preallocate": "TRUE"}
    assert await applied(client, cluster({**spelled, listener_key: "007"})) == ["unchanged"]
    assert capsys.readouterr().err == ""


@pytest.mark.asyncio
async def test_a_change_of_two_parts_is_checked_whole_before_it_begins(
    broker: FakeBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = topic(partitions=4, config={"retention.ms": 1})
    assert await applied(client, wanted) == ["configured"]
    for kind in (CreatePartitionsRequest, IncrementalAlterConfigsRequest):
        assert [request.validate_only for request in broker.of(kind)] == [True, False]
    refused = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=40, error_message="no such\nkey"
    )
    broker.answers[IncrementalAlterConfigsRequest] = lambda _: IncrementalAlterConfigsResponse(
        responses=[refused]
    )
    broker.requests.clear()
    assert await applied(client, wanted) == ["no such key"]
    assert [request.validate_only for request in broker.of(CreatePartitionsRequest)] == [True]
    said = capsys.readouterr()
    assert said.out == "topic/flights configured\n"
    assert said.err == "Error: topic/flights: no such key\n"


@pytest.mark.asyncio
async def test_a_dry_run_only_asks(
    broker: FakeBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await applied(client, topic(partitions=4), dry_run=True) == ["configured"]
    assert [request.validate_only for request in broker.of(CreatePartitionsRequest)] == [True]
    assert capsys.readouterr().out == "topic/flights configured (dry run)\n"


@pytest.mark.asyncio
async def test_a_refusal_does_not_keep_the_next_from_being_applied(
    broker: FakeBroker, client: Client
) -> None:
    broker.topics["orders"] = 1
    results = await applied(client, topic(partitions=2), topic("orders"))
    assert results == [
        "spec.partitions: the topic has 3 and partitions only grow; write 3 or more",
        "unchanged",
    ]


@pytest.mark.asyncio
async def test_a_topic_that_was_created_meanwhile_is_compared_again(
    broker: FakeBroker, client: Client
) -> None:
    def exists(request: CreateTopicsRequest) -> CreateTopicsResponse:
        broker.topics["new"] = 1
        row = CreateTopicsResponse.CreatableTopicResult(name="new", error_code=36)
        return CreateTopicsResponse(topics=[row])

    broker.answers[CreateTopicsRequest] = exists
    assert await applied(client, topic("new")) == ["created"]
    assert len(broker.of(CreateTopicsRequest)) == 1
