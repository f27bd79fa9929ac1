"""`make oracle`: the same requests to Apache Kafka and to Logfleet, and whether the answers are the same.

Fails if an answer differs in a way that differences.toml does not list, or if a line of that file was not needed.
"""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker
from e2e.harness.results import RESULTS, source_key, store
from e2e.oracle.corpora import all_corpora
from e2e.oracle.corpus import Corpus
from e2e.oracle.report import as_json, table, tell
from e2e.oracle.reviewed import ReviewedList
from e2e.oracle.runs import Oracle, Tally
from e2e.oracle.side import Side

LIST = Path(__file__).with_name("differences.toml")
STORE = RESULTS / "oracle.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "e2e/oracle",
    "e2e/harness",
    "e2e/kafka",
)
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
}
"""Of both brokers: what would only make the run longer, or answers depend on the time."""


@contextlib.contextmanager
def both_brokers(directory: Path) -> Iterator[tuple[Side, Side]]:
    """Kafka and ours, started once; ended with the block."""
    with KafkaBroker(directory / "kafka", **CONFIG) as kafka:
        ours = Broker(directory / "ours", CONFIG)
        try:
            ours.start()
            sides = (
                Side("kafka", kafka.port, kafka.config["log.dirs"]),
                Side("ours", ours.port, str(ours.data)),
            )
            yield sides
            for side in sides:
                side.close()
        finally:
            ours.close()


def run(corpora: Sequence[Corpus], only: str, oracle: Oracle) -> dict[str, Tally]:
    """Every case whose CORPUS/NAME has `only`; tells of what differs as it comes."""
    tallies = {}
    for corpus in corpora:
        started = time.monotonic()
        tally = tallies[corpus.name] = Tally()
        for case in corpus.cases:
            if re.search(only, f"{corpus.name}/{case.name}"):
                tell(oracle.judge(corpus.name, case, tally))
        tally.seconds = time.monotonic() - started
    return {name: tally for name, tally in tallies.items() if tally.cases}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__)
    parser.add_argument(
        "--only", default="", help="cases whose CORPUS/NAME has this regular expression"
    )
    parser.add_argument("--examples", type=int, default=0, help="sequences to try, at random")
    arguments = parser.parse_args()
    reviewed = ReviewedList.parse(LIST.read_text())
    with (
        tempfile.TemporaryDirectory(prefix="logfleet-oracle-") as scratch,
        both_brokers(Path(scratch)) as sides,
        contextlib.closing(Oracle(*sides, reviewed)) as oracle,
    ):
        tallies = run(all_corpora(sides, arguments.examples), arguments.only, oracle)
    unneeded = [] if arguments.only else reviewed.unneeded()
    print(table(tallies, unneeded))
    green = bool(tallies) and all(each.is_green for each in tallies.values()) and not unneeded
    if green and not arguments.only:
        store(STORE, source_key(*SOURCES), as_json(tallies, reviewed))
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
