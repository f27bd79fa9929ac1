"""The page of error paths: the tests that show them, with what each test says of itself."""

import ast
import textwrap
from pathlib import Path
from typing import Final

RECIPES: Final = Path(__file__).resolve().parents[1] / "suites/local/testing/test_recipes.py"

COLUMNS: Final = 120

HEAD: Final = """# Ten ways in which it goes wrong
Each of these is a test that passes, with confluent-kafka, aiokafka and kafka-python. Copy the one that your code has
not met yet. [Testing on a real broker](testing.md) has the fixtures, and all that a test can do to brokers.

`client` makes producers and consumers of the three libraries in turn; in your test that is your own code. A producer
is idempotent and waits for all replicas, `flush` returns how many records are not acknowledged yet. A consumer commits
only when `commit` is called, and `take` waits for records. `values` is short for
`[each.value for each in kafka.records(topic)]`. `quick_sessions` is
`logfleet.testing.broker(config={"group.min.session.timeout.ms": "500"})`.

A block of `fault` fails if no request was hit, so a test cannot pass without having shown what it is for.
"""


def recipe_docs() -> str:
    """A section for each test: its name, its docstring, its code."""
    source = RECIPES.read_text(encoding="utf-8")
    tests = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return "\n".join([HEAD, *(section(each, source.splitlines()) for each in tests)])


def section(test: ast.FunctionDef, lines: list[str]) -> str:
    """The part of the page about one test."""
    title = test.name.removeprefix("test_").replace("_", " ").capitalize()
    prose = textwrap.fill(" ".join((ast.get_docstring(test) or "").split()), COLUMNS)
    end = test.end_lineno
    body = lines[test.body[1].lineno - 1 : end]
    names = ", ".join(each.arg for each in test.args.args)
    code = "\n".join([f"def {test.name}({names}):", *body])
    return f"## {title}\n{prose}\n\n```python\n{code}\n```\n"
