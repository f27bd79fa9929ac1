"""`logfleet`: the group that every command belongs to."""

import importlib

import click

# Command -> the module that has it under the same name. Modules are imported when their command is called: a
# command line that lists topics has no use for a broker's libraries.
COMMANDS = {
    "broker": "logfleet.cli.broker",
    "local": "logfleet.cli.local",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Logfleet: a fleet of log brokers that speaks Kafka's protocol."""
