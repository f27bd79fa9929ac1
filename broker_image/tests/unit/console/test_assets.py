"""What browsers load is committed as the lock names it, and nothing is loaded from elsewhere."""

import re
import tomllib
from pathlib import Path

import logfleet.console

from broker_image.tools.console_assets import sha512

CONSOLE = Path(logfleet.console.__file__).parent
STATIC = CONSOLE / "static"
PACKAGES = tomllib.loads((STATIC / "assets.lock").read_text())["package"]


def test_the_committed_files_are_those_of_the_lock() -> None:
    wanted = {
        name: file["sha512"]
        for package in PACKAGES
        if not package.get("only_for_tests")
        for name, file in package["files"].items()
    }
    there = {path.name: sha512(path.read_bytes()) for path in (STATIC / "vendor").iterdir()}
    assert there == wanted


def test_every_committed_library_has_its_licence_beside_it() -> None:
    for package in PACKAGES:
        if not package.get("only_for_tests"):
            assert package["licence"] in {"0BSD", "MIT"}
            assert any(name.endswith(".LICENSE") for name in package["files"])


def test_pages_load_nothing_from_elsewhere_and_have_no_inline_script_or_style() -> None:
    pages = [*(CONSOLE / "templates").glob("*.html"), STATIC / "app.css", STATIC / "app.js"]
    assert len(pages) > 5
    for path in pages:
        text = path.read_text()
        assert not re.search(
            r"(?:src|href)=\"?https?:|url\(|@import|\bstyle=|<style|\son(?:click|load|submit|error|change)=",
            text,
        )
        assert not re.search(r"<script(?![^>]* src=)", text), path
