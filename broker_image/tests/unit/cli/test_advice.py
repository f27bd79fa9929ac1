import click
import pytest
from click.testing import CliRunner
from logfleet.cli.advice import ADVICE, MEANINGS, explain
from logfleet.cli.main import cli
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError
from logfleet.wire.errors import ErrorCode


def command_named(path: str) -> click.Command:
    command: click.Command = cli
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {path}"
        command = found
    assert not isinstance(command, click.Group)
    return command


def explained_by(path: str, error: KafkaError) -> str:
    """What the command says that has this path, as it runs."""
    context = click.Context(cli, info_name="logfleet")
    command: click.Command = cli
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    with context:
        return explain(error)


COMMANDS = sorted({path for path, _ in ADVICE})


@pytest.mark.parametrize("path", ["", *COMMANDS])
def test_the_words_of_a_broker_come_first_whatever_its_code_and_our_advice(path: str) -> None:
    for code in ErrorCode:
        error = KafkaError(code, "Words of a broker.", subject="topic t")
        line = explained_by(path, error)
        assert line.startswith("topic t: Words of a broker")
        assert line.endswith(ADVICE.get((path, code), "Words of a broker."))


@pytest.mark.parametrize("path, code", ADVICE)
def test_advice_is_for_a_command_that_is_there(path: str, code: ErrorCode) -> None:
    command_named(path)
    words = MEANINGS[code]
    assert explained_by(path, KafkaError(code)) == f"{words}; {ADVICE[path, code]}"


@pytest.mark.parametrize(
    "error, words",
    [
        (ConnectionLost("a:1: it\nbroke"), "a:1: it broke"),
        (KafkaError(40, "bad\tvalue", subject="topic t"), "topic t: bad value"),
        (KafkaError(45), "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (
            KafkaError(ErrorCode.NON_EMPTY_GROUP, subject="group g"),
            "group g: the group has members",
        ),
    ],
)
def test_errors_are_told_in_one_line(error: ClientError, words: str) -> None:
    assert explain(error) == words


def test_the_command_that_runs_is_known_by_itself() -> None:
    @click.group(name="logfleet")
    def program() -> None:
        pass

    @program.group(name="topic")
    def topic() -> None:
        pass

    @topic.command(name="create")
    def create() -> None:
        click.echo(explain(KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")))

    said = CliRunner().invoke(program, ["topic", "create"]).stdout
    assert said == "Topic 't' already exists; `logfleet topic alter` changes it\n"
