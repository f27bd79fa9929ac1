"""Rows of load, for the benches of one broker and of a fleet, and their options."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from e2e.bench.conditions import bench_rig, conditions_beside_kafka, print_conditions
from e2e.bench.figures import Rounds, Values, chosen, compared, table
from e2e.bench.kafka.client import Client, figures
from e2e.bench.kafka.nodes import Cluster
from e2e.bench.kafka.rows import Kind, Life, Load
from e2e.bench.report import HEAD, as_json
from e2e.bench.rounds import run_rounds
from e2e.harness.debian import PackagesMissing
from e2e.harness.kafka import KafkaUnavailable, classpath
from e2e.harness.processes import Rig
from e2e.harness.topics import create_topic, delete_topic

SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    ":(glob)e2e/bench/*.py",
    "e2e/bench/kafka",
    "e2e/kafka",
)
Rows = Sequence[Load | Life]


def measure(load: Load, cluster: Cluster, client: Client, topic: str) -> Values:
    """A fresh topic, the load, and the topic gone again. A topic to be read is written first, unmeasured."""
    create_topic(cluster.bootstrap, topic, load.partitions, load.config, load.replicas)
    if load.kind is Kind.READ:
        client.run(Kind.WRITE, cluster, topic, load.arguments())
    measured = client.run(load.kind, cluster, topic, load.arguments())
    delete_topic(cluster.bootstrap, topic)
    cluster.await_deleted()
    return figures(measured)


def run_loads(
    loads: Sequence[Load],
    clusters: Mapping[str, Cluster],
    client: Client,
    *,
    rounds: int,
    warmups: int,
) -> dict[str, Rounds]:
    """By row."""

    def one(load: Load, side: str, number: int) -> Values:
        return measure(load, clusters[side], client, f"{load.name}-{number}")

    return run_rounds(loads, list(clusters), one, rounds=rounds, warmups=warmups)


def parser_of(prog: str, description: str | None, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--rows", default="", help="rows whose name contains one of these words")
    parser.add_argument("--rounds", type=int, help=f"that count (default {rounds})")
    parser.add_argument("--quick", action="store_true", help="a trial: small sizes, no results")
    return parser


def parsed(
    parser: argparse.ArgumentParser, all_rows: Rows, rounds: int
) -> tuple[argparse.Namespace, Rows]:
    """The options, and the rows that they choose, small ones for a trial."""
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else rounds)
    try:
        rows = chosen(options.rows, all_rows)
    except ValueError as error:
        parser.error(f"ROWS: {error}")
    if options.rounds < 1:
        parser.error("ROUNDS is 1 or more")
    if not {0, 1} <= os.sched_getaffinity(0):
        parser.error("processors 0 and 1 are needed: one for the brokers, one for the client")
    return options, [
        row.smaller if options.quick and isinstance(row, Load) else row for row in rows
    ]


def measured(run: Callable[[Rig], dict[str, Rounds]], rows: Rows, *, quick: bool) -> dict[str, Any]:
    """Run, print the table; return what is to be kept. Exits with 2 where Java, Kafka or a package is missing."""
    try:
        classpath("broker")
        found_on = conditions_beside_kafka()
        with bench_rig("bench") as rig:
            rounds = run(rig)
    except (PackagesMissing, KafkaUnavailable) as missing:
        print(missing, file=sys.stderr)
        sys.exit(2)
    print_conditions(found_on)
    found = [(row, compared(row, rounds[row.name])) for row in rows]
    print(table(HEAD, found, quick=quick))
    of_rows = {row.name: as_json(row, each, rounds[row.name]) for row, each in found}
    return {**found_on, "rows": of_rows}
