"""Writes docs/reference/configs.md again: `python broker_image/tools/config_docs.py`. A test fails while the committed file is an old one."""

from pathlib import Path

from logfleet.config.docs import config_docs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configs.md"

if __name__ == "__main__":
    PAGE.write_text(config_docs(), encoding="utf-8")
