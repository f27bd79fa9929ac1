import json
import os
import time
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from logfleet.cli.completion import names
from logfleet.cli.completion.names import FRESH_S, KINDS, NO_NAMES, Names, names_at
from logfleet.cli.contexts.address import Address
from logfleet.cli.contexts.model import Context
from logfleet.cli.main import cli
from logfleet.client.cluster import Client
from logfleet.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

HERE = Address("here:1", "-b")
SOME: Names = {
    "topics": ["__consumer_offsets", "orders", "payments"],
    "groups": ["billing"],
    "brokers": ["1", "2", "10"],
    "topicKeys": ["cleanup.policy", "retention.bytes", "retention.ms"],
    "brokerKeys": ["log.retention.ms"],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked; each answers SOME."""
    found: list[str] = []

    def ask(address: Address) -> Names:
        found.append(address.bootstrap)
        return SOME

    monkeypatch.setattr(names, "asked_names", ask)
    return found


def completed(line: str) -> list[str]:
    """What a shell offers behind this line; a blank at its end begins a new word."""
    *words, incomplete = line.split(" ")
    found = ShellComplete(cli, {}, "logfleet", "_X").get_completions(words, incomplete)
    return [each.value for each in found]


def test_names_are_asked_for_once_a_minute(asked: list[str], own_folders: Path) -> None:
    assert names_at(HERE) == SOME
    assert names_at(HERE) == SOME
    assert asked == ["here:1"]
    (file,) = own_folders.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    old_s = time.time() - FRESH_S - 1
    os.utime(file, (old_s, old_s))
    names_at(HERE)
    names_at(Address("there:1", "-b"))
    assert asked == ["here:1", "here:1", "there:1"]


def test_old_names_are_better_than_none(
    asked: list[str], own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_at(HERE)
    (file,) = own_folders.iterdir()
    os.utime(file, (0, 0))
    monkeypatch.setattr(names, "asked_names", lambda _: None)
    assert names_at(HERE) == SOME
    assert names_at(Address("dead:1", "-b")) == NO_NAMES


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"topics": 5})])
def test_a_cache_that_cannot_be_read_is_made_again(text: str, own_folders: Path) -> None:
    names_at(HERE)
    (file,) = own_folders.iterdir()
    file.write_text(text)
    assert names_at(HERE) == SOME


@pytest.mark.usefixtures("asked")
def test_a_cache_that_cannot_be_written_hides_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert names_at(HERE) == SOME


def test_a_dead_address_is_silent_and_so_is_one_that_needs_tls() -> None:
    assert names.asked_names(Address("127.0.0.1:1", "-b")) is None
    protected = Context("p", "127.0.0.1:1", settings={"security.protocol": "SSL"})
    assert names.asked_names(Address("127.0.0.1:1", "-c", protected)) is None


@pytest.mark.asyncio
async def test_a_broker_is_asked_for_its_names() -> None:
    def configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        kind = DescribeConfigsResponse.DescribeConfigsResult
        entry = DescribeConfigsResponse.DescribeConfigsResourceResult
        return DescribeConfigsResponse(
            results=[
                kind(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[entry(name=f"key.of.{each.resource_name}")],
                )
                for each in request.resources
            ]
        )

    group = ListGroupsResponse.ListedGroup(group_id="g", protocol_type="consumer")
    async with (
        FakeBroker({"t": 1}).running() as broker,
        Client(broker.bootstrap, timeout_ms=0) as client,
    ):
        broker.answers |= {
            DescribeConfigsRequest: configs,
            ListGroupsRequest: lambda _: ListGroupsResponse(groups=[group]),
        }
        found = await names._fetched(client)
    assert set(found) == set(KINDS)
    assert found == {
        "topics": ["t"],
        "groups": ["g"],
        "brokers": ["1"],
        "topicKeys": ["key.of.t"],
        "brokerKeys": ["key.of.1"],
    }


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "line, offered",
    [
        ("topic describe ", ["orders", "payments"]),
        ("topic describe or", ["orders"]),
        ("topic describe __", ["__consumer_offsets"]),
        ("topic describe orders ", ["payments"]),
        ("topic alter orders -c ret", ["retention.bytes=", "retention.ms="]),
        ("topic alter orders -d cl", ["cleanup.policy"]),
        ("consume pay", ["payments"]),
        ("consume orders -g ", ["billing"]),
        ("produce ord", ["orders"]),
        ("group describe ", ["billing"]),
        ("group reset-offsets billing -t pa", ["payments"]),
        ("records delete ord", ["orders"]),
        ("may-i stop ", ["1", "2", "10"]),
        ("drain 1", ["1", "10"]),
        ("config set topic ord", ["orders"]),
        ("config set topic orders retention.m", ["retention.ms="]),
        ("config delete broker 1 log.r", ["log.retention.ms"]),
        ("config set cluster log.r", ["log.retention.ms="]),
        ("events --topic ord", ["orders"]),
        ("topic li", ["list"]),
        ("top", ["topic"]),
        ("topic list -o ", ["table", "wide", "name", "json"]),
    ],
)
def test_a_shell_offers_what_the_cluster_has(line: str, offered: list[str]) -> None:
    assert [each for each in completed(line) if not each.startswith("-")] == offered


def test_the_address_is_that_of_the_line_that_is_typed(asked: list[str], own_folders: Path) -> None:
    own_folders.mkdir(parents=True)
    text = '[contexts.prod]\n"bootstrap.servers" = "prod:1"\n'
    (own_folders / "contexts.toml").write_text(text)
    for line in (
        "topic describe -b behind:1 ",
        "-b before:1 topic describe ",
        "topic describe -c prod ",
        "topic describe ",
    ):
        completed(line)
    assert asked == ["behind:1", "before:1", "prod:1", "localhost:9092"]
    assert completed("topic list -c p") == ["prod"]
    assert completed("context use p") == ["prod"]
    assert completed("topic describe -c nope ") == []
    (own_folders / "contexts.toml").write_text("broken")
    assert completed("topic describe ") == completed("topic list -c ") == []


def test_completing_a_command_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> click.Command:
        raise AssertionError("a command is imported")

    monkeypatch.setattr(cli, "get_command", refused)
    assert "topic" in completed("")
