from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from logfleet.cli.output.formats import Output
from logfleet.cli.root_options import RootOptions
from logfleet.cli.session import (
    Server,
    changing_options,
    executing_options,
    record_output_option,
    run,
    server_options,
)
from logfleet.client.cluster import Client

CONTEXTS = """
current = "now"
[contexts.now]
"bootstrap.servers" = "now:1"
[contexts.other]
"bootstrap.servers" = "other:1"
read_only = true
"""


@click.command()
@server_options
@record_output_option
def probe(server: Server, as_json: bool) -> None:
    click.echo(f"{server.bootstrap} {server.timeout_seconds} {as_json}")


@pytest.fixture
def contexts(own_folders: Path) -> Path:
    own_folders.mkdir(parents=True)
    path = own_folders / "contexts.toml"
    path.write_text(CONTEXTS)
    return path


@pytest.mark.parametrize(
    "arguments, environment, shown",
    [
        ([], {}, "localhost:9092 30.0 False"),
        ([], {"LOGFLEET_BOOTSTRAP_SERVER": "a:1,b:2"}, "a:1,b:2 30.0 False"),
        ([], {"LOGFLEET_BOOTSTRAP_SERVER": ""}, "localhost:9092 30.0 False"),
        (["-b", "c"], {"LOGFLEET_BOOTSTRAP_SERVER": "a:1"}, "c 30.0 False"),
        (["--timeout", "2", "-o", "json"], {}, "localhost:9092 2.0 True"),
    ],
)
def test_where_the_address_comes_from_without_contexts(
    arguments: list[str], environment: dict[str, str], shown: str
) -> None:
    assert CliRunner(env=environment).invoke(probe, arguments).stdout == shown + "\n"


@pytest.mark.usefixtures("contexts")
@pytest.mark.parametrize(
    "arguments, before, address",
    [
        ([], RootOptions(), "now:1"),
        ([], RootOptions(context="other"), "other:1"),
        (["-c", "now"], RootOptions(context="other"), "now:1"),
        ([], RootOptions(bootstrap="b:1"), "b:1"),
        (["-b", "near:1"], RootOptions(bootstrap="b:1", context="other"), "near:1"),
    ],
)
def test_a_context_names_the_address_and_options_may_stand_before_the_command(
    arguments: list[str], before: RootOptions, address: str
) -> None:
    assert CliRunner().invoke(probe, arguments, obj=before).stdout.split()[0] == address


def test_a_file_of_contexts_that_cannot_be_read_is_named_unless_nobody_needs_it(
    contexts: Path,
) -> None:
    contexts.write_text("[contexts.now]\n")
    done = CliRunner().invoke(probe, [])
    assert done.exit_code == 1
    assert done.stderr == (
        f"Error: {contexts}: context now lacks bootstrap.servers; correct or remove it\n"
    )
    assert CliRunner().invoke(probe, ["-b", "b:1"]).exit_code == 0


@pytest.mark.parametrize("address", ["host:port", "host:99999", ",", ":1"])
def test_an_address_that_is_none_is_a_mistake_of_usage(address: str) -> None:
    for arguments, environment in (
        (["-b", address], {}),
        ([], {"LOGFLEET_BOOTSTRAP_SERVER": address}),
    ):
        result = CliRunner(env=environment).invoke(probe, arguments)
        assert result.exit_code == 2
        assert "write host:port" in result.stderr


def test_a_failure_of_the_network_is_a_click_error_and_names_where_the_address_is_from() -> None:
    async def work(client: Client) -> None:
        raise AssertionError("nobody is connected")

    with pytest.raises(click.ClickException, match=r"^cannot connect to 127\.0\.0\.1:1: ") as found:
        run(Server("127.0.0.1:1", 1.0, "LOGFLEET_BOOTSTRAP_SERVER"), work)
    assert "that is the address of LOGFLEET_BOOTSTRAP_SERVER" in str(found.value)


def test_a_context_that_needs_tls_is_refused_before_anything_is_sent(contexts: Path) -> None:
    contexts.write_text(CONTEXTS + '"security.protocol" = "SSL"\n')

    @click.command()
    @server_options
    def command(server: Server) -> None:
        async def work(_: Client) -> None:
            raise AssertionError("somebody is connected")

        run(server, work)

    done = CliRunner().invoke(command, ["-c", "other"])
    assert done.stderr == (
        "Error: context other has security.protocol, and connections with TLS or SASL are not "
        "built yet: nothing was sent\n"
    )


@click.command()
@changing_options
def change(server: Server, output: Output, dry_run: bool) -> None:
    click.echo(f"{server.bootstrap} {'shown' if dry_run else 'changed'}")


@click.command()
@executing_options
def execute(server: Server, output: Output, execute: bool) -> None:
    click.echo(f"{server.bootstrap} {'changed' if execute else 'shown'}")


@pytest.mark.usefixtures("contexts")
@pytest.mark.parametrize(
    "command, arguments, code, out",
    [
        (change, [], 0, "now:1 changed\n"),
        (change, ["-c", "other"], 1, ""),
        (change, ["-c", "other", "--dry-run"], 0, "other:1 shown\n"),
        (change, ["-c", "other", "--yes-change", "other"], 0, "other:1 changed\n"),
        (change, ["-c", "other", "--yes-change", "now"], 1, ""),
        (change, ["--yes-change", "other"], 1, ""),
        (change, ["-b", "b:1", "-c", "other"], 1, ""),
        (change, ["-b", "b:1"], 0, "b:1 changed\n"),
        (execute, ["-c", "other"], 0, "other:1 shown\n"),
        (execute, ["-c", "other", "--dry-run"], 0, "other:1 shown\n"),
        (execute, ["-c", "other", "--execute"], 1, ""),
        (execute, ["-c", "other", "--execute", "--yes-change", "other"], 0, "other:1 changed\n"),
        (execute, ["--execute", "--dry-run"], 2, ""),
    ],
)
def test_a_read_only_context_is_changed_only_by_its_name(
    command: click.Command, arguments: list[str], code: int, out: str
) -> None:
    done = CliRunner().invoke(command, arguments)
    assert (done.exit_code, done.stdout) == (code, out)


@pytest.mark.usefixtures("contexts")
def test_a_refusal_of_a_read_only_context_names_the_way_out() -> None:
    assert CliRunner().invoke(change, ["-c", "other"]).stderr == (
        "Error: context other is read-only: nothing was changed; --yes-change other does it\n"
    )
    assert CliRunner().invoke(change, ["--yes-change", "other"]).stderr == (
        "Error: --yes-change other: nothing was changed, as the cluster is that of context now, "
        "the current one\n"
    )
