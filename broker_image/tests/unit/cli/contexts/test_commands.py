import json

import click
import pytest
from click.testing import CliRunner, Result
from logfleet.cli.contexts import commands
from logfleet.cli.contexts.file import load_contexts
from logfleet.cli.main import cli
from logfleet.cli.session import Server
from logfleet.client.admin import ClusterDescription
from logfleet.client.metadata import Node


def logfleet(line: str) -> Result:
    return CliRunner().invoke(cli, line.split(), prog_name="logfleet")


@pytest.fixture(autouse=True)
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster answers at each address but down:1."""

    def run(server: Server, _: object) -> ClusterDescription:
        if server.bootstrap == "down:1":
            raise click.ClickException("cannot connect to down:1: refused; start it")
        return ClusterDescription("c1", 1, (Node(1, "h", 9092, None),))

    monkeypatch.setattr(commands, "run", run)


def test_a_context_is_added_used_shown_and_removed() -> None:
    added = logfleet("context add prod -b b1:9092 --read-only")
    assert added.stdout == "context/prod added: 1 brokers, cluster c1\n"
    assert logfleet("context current").stderr.startswith("Error: no context is current; ")
    assert logfleet("context use prod").stdout == (
        "context/prod is current; changes need --yes-change prod\n"
    )
    logfleet("-b l:1 context add local")
    assert [line.split() for line in logfleet("context list").stdout.splitlines()] == [
        ["NAME", "BROKERS", "READ-ONLY", "CLUSTER"],
        ["local", "l:1", "no", "c1"],
        ["*", "prod", "b1:9092", "yes", "c1"],
    ]
    assert logfleet("context list -o name").stdout == "local\nprod\n"
    assert logfleet("context current").stdout == "prod\n"
    assert logfleet("context show").stdout.splitlines() == [
        "Context:    prod (current)",
        "Brokers:    b1:9092",
        "Read-only:  yes",
        "Cluster:    c1",
    ]
    assert logfleet("context remove prod").stdout == "context/prod removed\n"
    assert logfleet("context current").exit_code == 1
    assert logfleet("context show").exit_code == 1


def test_a_cluster_that_does_not_answer_is_added_with_a_warning() -> None:
    done = logfleet("context add far -b down:1 --use -o json")
    assert done.exit_code == 0
    assert done.stderr == "Warning: cannot connect to down:1: refused\n"
    assert json.loads(done.stdout)[0]["cluster"] is None
    assert load_contexts().current == "far"


def test_settings_for_tls_are_kept_and_nobody_is_asked() -> None:
    line = "context add tls -b s:1 -s security.protocol=SSL -s ssl.truststore.location=/ca.pem"
    done = logfleet(line)
    assert "not built yet: nothing was sent" in done.stderr
    assert logfleet("context show tls").stdout.splitlines()[-2:] == [
        "Settings:   security.protocol=SSL",
        "            ssl.truststore.location=/ca.pem",
    ]
    assert "not built yet" in logfleet("topic list -c tls").stderr


@pytest.mark.parametrize(
    "line, code, sentence",
    [
        ("context add new", 2, "where are its brokers?"),
        ("context add new -b x:y", 2, "write host:port"),
        ("context add 'new -b x:1", 2, "is no name"),
        ("context add new -b x:1 -s ssl.key.password=geheim", 2, "is a secret"),
        ("context add prod -b x:1", 1, "context prod exists already; --replace changes it"),
        ("context use prd", 1, "there is no context prd; did you mean prod?"),
        ("context remove prod nope", 1, "there is no context nope"),
        ("context show nope", 1, "there is no context nope"),
        ("topic list -c prd", 1, "there is no context prd, as -c names it; did you mean prod?"),
        ("produce t -c prod", 1, "context prod is read-only: nothing was changed"),
        ("consume t -c prod -g g", 1, "context prod is read-only: nothing was changed"),
        ("topic delete --yes t -c prod", 1, "context prod is read-only: nothing was changed"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(line: str, code: int, sentence: str) -> None:
    logfleet("context add prod -b b1:9092 --read-only")
    before = load_contexts()
    done = logfleet(line)
    assert done.exit_code == code
    (error,) = done.stderr.splitlines()
    assert sentence in error
    assert load_contexts() == before


def test_an_existing_context_is_replaced_if_that_is_meant() -> None:
    logfleet("context add prod -b b1:9092 --read-only")
    assert logfleet("context add prod -b b2:9092 --replace").exit_code == 0
    assert load_contexts().all["prod"].bootstrap == "b2:9092"
    assert not load_contexts().all["prod"].is_read_only
