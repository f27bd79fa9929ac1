"""Writes docs/reference/metrics.md again: `python broker_image/tools/metric_docs.py`. A test fails while the committed file is an old one."""

from pathlib import Path

from logfleet.telemetry.docs import metric_docs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"

if __name__ == "__main__":
    PAGE.write_text(metric_docs(), encoding="utf-8")
