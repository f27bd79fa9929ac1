"""What options and arguments offer to a shell; the names are loaded when somebody presses TAB."""

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete(kind: str) -> Complete:
    """A callback that completes names of this kind, without those typed already."""

    def completed(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed = ctx.params.get(param.name or "") if param.multiple or param.nargs == -1 else ()
        taken = set(map(str, typed or ()))
        return [
            CompletionItem(each) for each in _beginning(ctx, kind, incomplete) if each not in taken
        ]

    return completed


def complete_config(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the name behind `logfleet config VERB KIND`, then its keys."""
    kind = ctx.params.get("kind")
    typed = list(ctx.params.get(param.name or "") or ())
    if kind in {"topic", "broker", "group"} and not typed:
        return [CompletionItem(each) for each in _beginning(ctx, f"{kind}s", incomplete)]
    keys = "topicKeys" if kind == "topic" else "brokerKeys"
    end = "=" if ctx.info_name == "set" else ""
    return [CompletionItem(each + end) for each in _beginning(ctx, keys, incomplete)]


def complete_key(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the key of a topic's KEY=VALUE."""
    end = "" if param.name == "delete_config" else "="
    return [CompletionItem(each + end) for each in _beginning(ctx, "topicKeys", incomplete)]


def complete_context(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of contexts."""
    from logfleet.cli.completion.names import contexts_beginning

    del ctx, param
    return [CompletionItem(each) for each in contexts_beginning(incomplete)]


def _beginning(ctx: click.Context, kind: str, incomplete: str) -> list[str]:
    from logfleet.cli.completion.names import beginning  # asyncio and the client take a while

    return beginning(ctx, kind, incomplete)
