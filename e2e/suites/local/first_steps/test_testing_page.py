"""The page about testing: its example passes as it stands, and its fixtures are there."""

import re
import sys
from pathlib import Path

from e2e.harness.processes import Rig

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "testing.md"
WITHIN_S = 100.0


def test_the_example_of_the_page_passes_beside_fixtures_of_its_own(
    rig: Rig, tmp_path: Path
) -> None:
    example, fixtures = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "conftest.py").write_text(fixtures)
    (tmp_path / "test_orders.py").write_text(
        example
        + """

def test_topics_and_keys(orders_broker, small_broker):
    assert orders_broker.end("orders", 2) == 0
    assert small_broker.config["message.max.bytes"] == "4096"
"""
    )
    program = rig.program("pytest", [sys.executable, "-m", "pytest", "-q", str(tmp_path)])
    program.launch()
    assert program.wait(WITHIN_S) == 0, program.tail()
    assert "3 passed" in program.tail()
