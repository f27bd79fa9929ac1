"""Which cluster a command is for: by its options, the environment, or a context."""

import difflib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from logfleet.cli.contexts.model import Context, Contexts, WrongContext

BOOTSTRAP_VARIABLE: Final = "LOGFLEET_BOOTSTRAP_SERVER"
CONTEXT_VARIABLE: Final = "LOGFLEET_CONTEXT"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
GIVEN: Final = "-b"


class Address(NamedTuple):
    """source: where it comes from, for errors. context: None if it comes from none."""

    bootstrap: str
    source: str
    context: Context | None = None


def choose_address(
    bootstrap: str | None,
    context: str | None,
    environment: Mapping[str, str],
    load: Callable[[], Contexts],
) -> Address:
    """The address of -b, else of the first of those that is given.

    They are -c, LOGFLEET_BOOTSTRAP_SERVER, LOGFLEET_CONTEXT, the current context, localhost. With
    -b and -c the context counts for all but the address. load: called only if a context may be
    meant. Raises WrongContext, also if there is no such context.
    """
    if context is not None:
        named = find_context(load(), context, "-c")
        if bootstrap is not None:
            return Address(bootstrap, GIVEN, named)
        return Address(named.bootstrap, f"context {context} (-c)", named)
    if bootstrap is not None:
        return Address(bootstrap, GIVEN)
    if variable := environment.get(BOOTSTRAP_VARIABLE):
        return Address(variable, BOOTSTRAP_VARIABLE)
    contexts = load()
    if name := environment.get(CONTEXT_VARIABLE):
        named = find_context(contexts, name, CONTEXT_VARIABLE)
        return Address(named.bootstrap, f"context {name} ({CONTEXT_VARIABLE})", named)
    if contexts.current is not None:
        named = contexts.all[contexts.current]
        return Address(named.bootstrap, f"context {named.name}, the current one", named)
    return Address(DEFAULT_BOOTSTRAP, "the default")


def find_context(contexts: Contexts, name: str, source: str | None = None) -> Context:
    """The context. source: which named it. Raises WrongContext with the nearest name."""
    if name in contexts.all:
        return contexts.all[name]
    near = difflib.get_close_matches(name, contexts.all, n=1)
    guess = f"did you mean {near[0]}?" if near else "`logfleet context list` shows what there is"
    named = "" if source is None else f", as {source} names it"
    raise WrongContext(f"there is no context {name}{named}; {guess}")
