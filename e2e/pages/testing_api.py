"""The page of what `logfleet.testing` offers, from its signatures and docstrings."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

import logfleet.testing as offered
from logfleet.testing.faults.disturbing import ArmedFault, Disturbed
from logfleet.testing.groups import Group

HEAD: Final = """# logfleet.testing

Made by `make pages` from the docstrings; do not edit. [Testing on a real broker](../how-to/testing.md) shows how to use
it. All functions wait until what they do is done. Names that end in `_s` are seconds, those in `_ms` milliseconds.
"""
WIDTH: Final = 100
FIXTURES: Final = (offered.broker, offered.fleet)
CLASSES: Final[tuple[tuple[type, str], ...]] = (
    (offered.Broker, "Has all of `Kafka` and `Disturbed` as well."),
    (offered.Fleet, "Has all of `Kafka` and `Disturbed` as well. `fleet[1]` is broker 1."),
    (offered.Kafka, ""),
    (Disturbed, ""),
    (ArmedFault, ""),
    (Group, ""),
    (offered.Record, ""),
    (offered.OrderFailed, ""),
)


def api_docs() -> str:
    """The page."""
    parts = [HEAD, "## Fixtures of your own\n"]
    parts += [_entry(f"logfleet.testing.{each.__name__}", _parsed(each)) for each in FIXTURES]
    parts += [_class(each, more) for each, more in CLASSES]
    return "\n".join(parts)


def _parsed(what: type | Callable[..., Any]) -> ast.FunctionDef | ast.ClassDef:
    """Its definition, out of the whole module: that of a class is found by its name."""
    module = ast.parse(inspect.getsource(sys.modules[what.__module__]))
    (found,) = (
        each
        for each in module.body
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == what.__name__
    )
    return found


def _class(what: type, more: str) -> str:
    node = _parsed(what)
    doc = "\n\n".join(each for each in (ast.get_docstring(node), more) if each)
    members = "\n".join(_entry(each.name, each) for each in _members(node))
    return f"## {what.__name__}\n\n{doc}\n\n{members}"


def _members(node: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Those with a docstring; what has none is no part of the page."""
    for each in node.body:
        if (
            isinstance(each, ast.FunctionDef)
            and not each.name.startswith("_")
            and ast.get_docstring(each)
        ):
            yield each


def _entry(name: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    """A heading with the signature, then the docstring."""
    assert isinstance(node, ast.FunctionDef)
    is_value = any("property" in ast.unparse(each) for each in node.decorator_list)
    given = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    signature = name if is_value else f"{name}({given})"
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    shown = textwrap.fill(
        f"{signature}{result}",
        WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"```python\n{shown}\n```\n\n{ast.get_docstring(node)}\n"
