"""Whether all replicas of a partition hold the same batches, by Kafka's own dump of their logs (pure)."""

import re
from collections.abc import Mapping

_FILE = re.compile(r"^Dumping .*/([^/]+-\d+)/\d+\.log$")
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) ")
_PLACE = re.compile(r" position: \d+")

Batches = dict[str, dict[int, str]]
"""Line of the dump by base offset, by directory (TOPIC-N); without the position, as replicas need not roll at the same batch."""


def batches_of(dump: str) -> Batches:
    """What kafka.tools.DumpLogSegments says of `.log` files. Raises AssertionError for a batch that it does not find valid."""
    found: Batches = {}
    rows: dict[int, str] = {}
    for line in dump.splitlines():
        if file := _FILE.match(line):
            rows = found.setdefault(file[1], {})
        elif batch := _BATCH.match(line):
            assert line.endswith("isvalid: true"), line
            rows[int(batch[1])] = _PLACE.sub("", line)
    return found


def differences(dumps: Mapping[str, Batches], high_watermarks: Mapping[str, int]) -> list[str]:
    """Where replicas differ below the high watermark. dumps: by replica; high_watermarks: by directory.

    Each replica has each partition, and its batches reach up to the high watermark.
    """
    wrong = []
    for partition, high_watermark in sorted(high_watermarks.items()):
        below: dict[str, dict[int, str]] = {}
        for replica, batches in dumps.items():
            rows = batches.get(partition, {})
            below[replica] = {at: row for at, row in rows.items() if at < high_watermark}
        (first, expected), *others = below.items()
        if high_watermark and not expected:
            wrong.append(f"{partition}: {first} has no batch below {high_watermark}")
        for replica, rows in others:
            odd = sorted(
                at for at in expected.keys() | rows.keys() if expected.get(at) != rows.get(at)
            )
            if odd:
                at = odd[0]
                wrong.append(
                    f"{partition}@{at}: {first} has {expected.get(at)}, {replica} {rows.get(at)} ({len(odd)} differ)"
                )
    return wrong
