"""`make oracle`: the same requests to Apache Kafka and to Logfleet, and whether the answers are the same.

Fails if an answer differs in a way that differences.toml does not list, or if a line of that file was not needed.
"""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.compare.all_corpora import all_corpora
from e2e.compare.brokers import Pair
from e2e.compare.corpus import Playable
from e2e.compare.report import as_json, table, tell
from e2e.compare.reviewed import ReviewedList
from e2e.compare.runs import Oracle, Tally
from e2e.harness.results import RESULTS, source_key, store

LIST = Path(__file__).with_name("differences.toml")
STORE = RESULTS / "oracle.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "e2e/compare",
    "e2e/harness",
    "e2e/kafka",
)


def run(corpora: Sequence[Playable], only: str, oracle: Oracle) -> dict[str, Tally]:
    """Every case whose CORPUS/NAME has `only`; tells of what differs as it comes."""
    tallies = {}
    for corpus in corpora:
        started = time.monotonic()
        tally = tallies[corpus.name] = Tally()
        corpus.play(oracle, lambda name: re.search(only, name) is not None, tally)
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
        Pair(Path(scratch)) as pair,
        contextlib.closing(Oracle(pair, reviewed, tell)) as oracle,
    ):
        tallies = run(all_corpora(pair, arguments.examples), arguments.only, oracle)
    unneeded = [] if arguments.only else reviewed.unneeded()
    print(table(tallies, unneeded))
    green = bool(tallies) and all(each.is_green for each in tallies.values()) and not unneeded
    if green and not arguments.only:
        store(STORE, source_key(*SOURCES), as_json(tallies, reviewed))
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
