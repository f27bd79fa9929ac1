"""One module per corpus; each makes a Corpus."""

from e2e.oracle.corpora import admin, boundaries, fetch, groups, offsets, produce, reading, versions
from e2e.oracle.corpus import Corpus
from e2e.oracle.side import Side


def all_corpora(sides: tuple[Side, Side], examples: int) -> list[Corpus]:
    """In the order of running. examples: random sequences to try instead of the fixed ones, 0 for these."""
    ours = sides[1]
    return [
        versions.talks(ours),
        boundaries.corpus(ours),
        produce.CORPUS,
        fetch.CORPUS,
        reading.CORPUS,
        groups.CORPUS,
        offsets.CORPUS,
        admin.corpus(ours),
    ]
