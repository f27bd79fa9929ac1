"""Rounds of load: both sides in every row, in turns."""

import sys
from collections.abc import Mapping, Sequence

from e2e.bench.kafka.client import Client, figures
from e2e.bench.kafka.nodes import Cluster
from e2e.bench.kafka.rows import Kind, Load
from e2e.load.numbers import create_topic, delete_topic

Values = dict[str, float]
Rounds = dict[str, list[Values]]
"""The values of each round, by side."""


def rotated(sides: Sequence[str], turn: int) -> list[str]:
    """The sides in the order of their turn: each is first as often as any other."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


def measure(load: Load, cluster: Cluster, client: Client, topic: str) -> Values:
    """A fresh topic, the load, and the topic gone again. A topic to be read is written first, unmeasured."""
    create_topic(cluster.bootstrap, topic, load.partitions, load.config, load.replicas)
    if load.kind is Kind.READ:
        client.run(Kind.WRITE, cluster, topic, load.arguments())
    measured = client.run(load.kind, cluster, topic, load.arguments())
    delete_topic(cluster.bootstrap, topic)
    cluster.await_deleted()
    return figures(measured)


def tell(row: str, side: str, values: Values) -> None:
    """What a run that is ended before its end has found, for whoever watches it."""
    figures = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
    print(f"{row}, {side}: {figures}", file=sys.stderr, flush=True)


def run_loads(
    loads: Sequence[Load],
    clusters: Mapping[str, Cluster],
    client: Client,
    *,
    rounds: int,
    warmups: int,
) -> dict[str, Rounds]:
    """By row. The first `warmups` rounds are whole rounds whose values are thrown away: a cold Java machine needs 3 to 6 times as long."""
    found: dict[str, Rounds] = {load.name: {side: [] for side in clusters} for load in loads}
    for number in range(warmups + rounds):
        for place, load in enumerate(loads):
            for side in rotated(list(clusters), number + place):
                values = measure(load, clusters[side], client, f"{load.name}-{number}")
                if number >= warmups:
                    found[load.name][side].append(values)
                    tell(load.name, side, values)
        kind = "warm-up round" if number < warmups else "round"
        print(f"{kind} {number + 1} of {warmups + rounds}", file=sys.stderr)
    return found
