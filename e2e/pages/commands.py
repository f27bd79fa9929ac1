"""The page of all commands: what each one's `--help` prints."""

from collections.abc import Iterator
from typing import Final

import click
from logfleet.cli.main import cli

WIDTH: Final = 100
HEAD: Final = """# Commands

What `--help` prints, command by command. Exit codes: 0 done, 1 failed or "no", 2 wrong usage, 130 after Ctrl-C.
"""


def command_docs() -> str:
    """The page."""
    return "\n".join([HEAD, *(_section(each) for each in _contexts(cli, None, "logfleet"))])


def _contexts(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[click.Context]:
    context = click.Context(
        command,
        parent,
        name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from _contexts(below, context, each)


def _section(context: click.Context) -> str:
    # click keeps the first help option that it made of a command, with the names of that context
    context.command._help_option = None  # noqa: SLF001
    text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
    return f"## {context.command_path}\n\n```text\n{text}\n```\n"
