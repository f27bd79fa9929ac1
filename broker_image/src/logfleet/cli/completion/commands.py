"""`logfleet completion`: the script that has a shell complete command lines."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

VARIABLE: Final = "_LOGFLEET_COMPLETE"
PROGRAM: Final = "logfleet"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write it where the shell finds it.")
@click.pass_context
def completion(ctx: click.Context, shell: str, *, install: bool) -> None:
    """Print the script that has a shell complete commands, options and names, or install it.

    Names are those of topics, groups, brokers, keys and contexts. They are asked of the cluster of
    the command line, for half a second at most, and kept for a minute in
    $XDG_CACHE_HOME/logfleet, or in ~/.cache/logfleet.

    \b
    logfleet completion bash --install
    logfleet completion zsh --install
    logfleet completion fish | source

    Exit codes: 0 done, 1 the file cannot be written, 2 the command line is wrong.
    """
    script = script_of(shell, ctx.find_root().command)
    if not install:
        click.echo(script)
        return
    try:
        path = path_of(shell, os.environ, Path.home())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script + "\n")
    except (OSError, RuntimeError) as error:
        raise click.ClickException(f"the script cannot be written: {error}") from error
    click.echo(f"{path} is written; {_next_step(shell, path)}")


def script_of(shell: str, command: click.Command) -> str:
    """The script for this shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(command, {}, PROGRAM, VARIABLE).source()


def path_of(shell: str, environment: Mapping[str, str], home: Path) -> Path:
    """The file from which the shell loads completions of this program."""
    if shell == "bash":  # https://github.com/scop/bash-completion, user directory
        data = Path(environment.get("XDG_DATA_HOME") or home / ".local/share")
        return data / "bash-completion/completions" / PROGRAM
    if shell == "fish":
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        return config / f"fish/completions/{PROGRAM}.fish"
    return Path(environment.get("ZDOTDIR") or home) / f".zfunc/_{PROGRAM}"


def _next_step(shell: str, path: Path) -> str:
    if shell == "zsh":
        return f"if .zshrc lacks it, add: fpath+=({path.parent}); autoload -Uz compinit && compinit"
    if shell == "bash":
        return "it counts in new shells, with the package bash-completion"
    return "it counts in new shells"
