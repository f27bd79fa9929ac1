"""All corpora; each is a module of `corpora` that makes what can be played."""

from e2e.compare.brokers import Pair
from e2e.compare.corpora import (
    admin,
    batches,
    boundaries,
    config_edges,
    directories,
    fetch,
    fleet,
    groups,
    offsets,
    produce,
    reading,
    refusals,
    scripts,
    sequences,
    sessions,
    texts,
    topic_ids,
    versions,
)
from e2e.compare.corpora.transactions import coordinators, records
from e2e.compare.corpora.transactions import offsets as transactions_offsets
from e2e.compare.corpus import Playable


def all_corpora(pair: Pair, examples: int) -> list[Playable]:
    """In the order of playing. examples: random sequences to try instead of the fixed ones, 0 for these."""
    return [
        versions.talks(pair.ours),
        boundaries.corpus(pair.ours),
        produce.CORPUS,
        batches.CORPUS,
        fetch.CORPUS,
        sessions.CORPUS,
        texts.CORPUS,
        topic_ids.CORPUS,
        reading.CORPUS,
        groups.CORPUS,
        offsets.CORPUS,
        coordinators.CORPUS,
        records.CORPUS,
        transactions_offsets.CORPUS,
        admin.corpus(pair.ours),
        refusals.CORPUS,
        config_edges.CORPUS,
        sequences.Sequences(pair.ours, examples),
        scripts.CORPUS,
        fleet.Fleets(pair.directory / "fleets"),
        directories.Directories(pair),
    ]
