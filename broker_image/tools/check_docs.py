"""Writes docs/reference/checks.md again: `python broker_image/tools/check_docs.py`. A test fails while the committed file is an old one."""

from pathlib import Path

from logfleet.checks.docs import check_docs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "checks.md"

if __name__ == "__main__":
    PAGE.write_text(check_docs(), encoding="utf-8")
