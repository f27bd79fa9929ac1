"""The commands of the pages that people read first do what they say, in order, in a bare shell."""

import re
import sys
from pathlib import Path

import pytest

from e2e.harness.processes import Rig
from e2e.pages.reader import blocks

ROOT = Path(__file__).resolve().parents[4]
OURS = {"build", "logfleet-data", "logfleet-local"}
"""What the commands write to is not the checkout's."""
WITHIN_S = 540.0
LINES_MAX = 8
"""Of a job that a person runs: the JVM's greeting, ours, and here three warnings, as this machine has loopback alone."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tree as it is now, set up."""
    folder = tmp_path / "logfleet"
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in OURS:
            (folder / entry.name).symlink_to(entry)
    return folder


def read(rig: Rig, clone: Path, page: str) -> str:
    """All that a reader sees who types the blocks of the page, with ports and processes of its own."""
    own = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["env", f"--chdir={clone}", *own, sys.executable, "-m", "e2e.pages.reader", page]
    program = rig.program("reader", command)
    program.launch()
    code = program.wait(WITHIN_S)
    seen = program.log.read_text()
    assert code == 0, seen[-8_000:]
    return seen


def test_the_readme_is_a_session_that_works(rig: Rig, clone: Path) -> None:
    seen = read(rig, clone, "README.md")
    done = [each for each in blocks((ROOT / "README.md").read_text()) if each.is_for_here]
    assert seen.count("--- block ") == len(done) >= 4
    for words in (
        "Ready. Next: source",
        "world:hello",
        "topic/greetings created",
        "topic/flights created",
        "Yes: 2",
    ):
        assert words in seen


def pages_to_run() -> list[str]:
    """All pages of the site with blocks for here; those about Spark's jobs take minutes and are run apart."""
    return [
        str(page.relative_to(ROOT))
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent.name != "spark"
        and any(each.is_for_here for each in blocks(page.read_text()))
    ]


@pytest.mark.parametrize("page", pages_to_run())
def test_every_block_of_a_page_works_as_it_stands(rig: Rig, clone: Path, page: str) -> None:
    seen = read(rig, clone, page)
    done = [each for each in blocks((ROOT / page).read_text()) if each.is_for_here]
    assert seen.count("--- block ") == len(done) >= 1


@pytest.mark.full
def test_a_first_count_by_hand_is_a_session_that_works(rig: Rig, clone: Path) -> None:
    page = "docs/spark/index.md"
    seen = read(rig, clone, page)
    done = [each for each in blocks((ROOT / page).read_text()) if each.is_for_here]
    assert seen.count("--- block ") == len(done) == 4
    assert re.search(r"05:00:00\S* .* JFK +2 ", seen)
    assert re.search(r"06:00:00\S* .* LGA +1 ", seen)
    of_spark = re.split(r"--- block \d is done.*\n", seen)[2].splitlines()
    assert "done: rows 3, batches " in of_spark[-1]
    assert len(of_spark) <= LINES_MAX, of_spark
