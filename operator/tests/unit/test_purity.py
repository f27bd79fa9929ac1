"""Modules that call themselves pure are held to it by `lint-imports`."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_module_that_says_pure_stands_in_the_contract() -> None:
    says_so = set()
    source = ROOT / "operator/src"
    for path in source.rglob("*.py"):
        if "PURE." in (ast.get_docstring(ast.parse(path.read_text())) or ""):
            says_so.add(".".join(path.relative_to(source).with_suffix("").parts))
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    held = {
        module
        for contract in configured["contracts"]
        if contract["name"].startswith("Pure ")
        for module in contract["source_modules"]
        if module.startswith("logfleet_operator.")
    }
    assert held == says_so
