"""The same requests leave the same files; Kafka's dump tool reads ours, and a Kafka serves a partition that we wrote.

This is the last corpus: it stops both brokers.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp

from e2e.compare import requests as r
from e2e.compare.brokers import Pair
from e2e.compare.runs import Oracle, Tally
from e2e.compare.side import MadeTopic, Seen, Side
from e2e.harness.kafka import try_tool

NAME: Final = "directories"
DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
SEGMENT_BYTES: Final = 1 << 20
PRODUCERS: Final = (1000, 1001)
"""Ids that nobody was given, so that they are the same on both sides."""
COMPLAINTS: Final = re.compile(r"Mismatches|[Cc]orrupt|Index timestamp mismatch|Found timestamp")
OWN_OF_A_LOG: Final = "partition.metadata"
"""Holds the topic's id, which a broker chooses."""


class Directories:
    """Fills a partition on both sides, stops both, and looks at the files."""

    name: Final = NAME

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def play(self, oracle: Oracle, wanted: Callable[[str], bool], tally: Tally) -> None:
        if not wanted(f"{NAME}/"):
            return
        sides = (self._pair.kafka, self._pair.ours)
        for side in sides:
            side.begin(NAME, 2**62)
        topics = [fill(side) for side in sides]
        served = [read_all(side, topic) for side, topic in zip(sides, topics, strict=True)]
        self._pair.stop()
        folders = [
            Path(side.log_dir) / f"{topic.name}-0"
            for side, topic in zip(sides, topics, strict=True)
        ]
        theirs, own = ([*files(folder), *dumps(folder)] for folder in folders)
        tally.broken += [f"{NAME}: {each}" for each in own if not is_sound(each)]
        oracle.tell(oracle.compare(f"{NAME}/files", theirs, own, tally))
        self._move(folders[1], folders[0])
        self._pair.start_kafka()
        kafka = self._pair.kafka
        kafka.begin(NAME, 2**62)
        again = read_all(kafka, topics[0])
        oracle.tell(oracle.compare(f"{NAME}/served", served[0], served[1], tally))
        oracle.tell(oracle.compare(f"{NAME}/moved", again, served[1], tally))

    def _move(self, ours: Path, theirs: Path) -> None:
        """Put our partition in the place of Kafka's, under the id of Kafka's topic."""
        metadata = (theirs / OWN_OF_A_LOG).read_bytes()
        shutil.rmtree(theirs)
        shutil.copytree(ours, theirs)
        (theirs / OWN_OF_A_LOG).write_bytes(metadata)


def fill(side: Side) -> MadeTopic:
    """Every codec, two producers, more than three segments."""
    topic = side.topic("filled", config={"segment.bytes": str(SEGMENT_BYTES)})
    for number in range(120):
        stamp = ProducerStamp(PRODUCERS[number % 2], 0, number // 2 * 3)
        value = b"%d " % number * (9000 if number % 3 == 0 else 40)
        batch = r.batch(
            3, first=3 * number, value=value, codec=Codec(number % len(Codec)), producer=stamp
        )
        r.fill(side, topic, batch)
    return topic


def read_all(side: Side, topic: MadeTopic) -> list[Seen]:
    """Everything that a consumer reads, and where times stand."""
    side.seen.clear()
    offset = 0
    while True:
        answer = side.ask(r.fetch(topic, offset, partition_max_bytes=1), 12)
        if not answer.responses[0].partitions[0].records:
            break
        batches = side.seen[-1].outcome["responses"][0]["partitions"][0]["records"]
        offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1
    for number in range(0, 360, 7):
        side.ask(r.list_offsets(topic, r.T0 + number))
    return list(side.seen)


def files(folder: Path) -> list[Seen]:
    """The names of a partition's files, and each one's content."""
    named = sorted(each.name for each in folder.iterdir())
    return [
        Seen("names", 0, str(folder), named),
        *(
            Seen(f"file{Path(name).suffix}", 0, name, content(folder / name))
            for name in named
            if name != OWN_OF_A_LOG
        ),
    ]


def content(path: Path) -> Any:
    """Text as text; bytes by their length and 64 places, so that a difference can be told in short."""
    read = path.read_bytes()
    if not path.suffix:
        return read.decode().splitlines()
    step = max(len(read) // 64, 1)
    return {
        "bytes": len(read),
        "pieces": [hash_of(read[at : at + step]) for at in range(0, len(read), step)],
    }


def hash_of(piece: bytes) -> str:
    return hashlib.sha256(piece).hexdigest()[:16]


def dumps(folder: Path) -> list[Seen]:
    """What the dump tool says of each kind of file: nothing that sounds like a complaint, and the same of both."""
    seen = []
    for suffix, flags in (
        ("log", ["--print-data-log", "--deep-iteration"]),
        ("index", ["--index-sanity-check"]),
        ("timeindex", ["--index-sanity-check"]),
        ("snapshot", []),
    ):
        listed = ",".join(str(each) for each in sorted(folder.glob(f"*.{suffix}")))
        done = try_tool(DUMP, ["--files", listed, *flags], timeout_seconds=300)
        lines = [line.replace(str(folder), "") for line in done.stdout.splitlines()]
        complaints = [line for line in lines if COMPLAINTS.search(line)]
        outcome = {"exit": done.returncode, "complaints": complaints, "lines": len(lines)}
        seen.append(Seen(f"dump.{suffix}", 0, listed, outcome))
    return seen


def is_sound(seen: Seen) -> bool:
    """Whether the dump tool, if that is what was asked, has read the file and not complained."""
    if not seen.api.startswith("dump"):
        return True
    outcome = seen.outcome
    return outcome["exit"] == 0 and not outcome["complaints"] and outcome["lines"] > 0
