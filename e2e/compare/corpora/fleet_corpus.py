"""Cases for fleets, in stages: all brokers there, some of them gone, back again."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from e2e.compare.corpus import Corpus
from e2e.compare.fleet_side import FleetSide
from e2e.compare.side import Side

S = TypeVar("S", bound=Callable[[FleetSide], None])
V = TypeVar("V", bound=Callable[[FleetSide, int], None])


class FleetCorpus:
    """As Corpus, of cases that are given a FleetSide."""

    def __init__(self, name: str) -> None:
        self.corpus = Corpus(name)

    def case(self, script: S) -> S:
        self.corpus.case(_for_fleets(script))
        return script

    def versions(self, api: str, *, only: Iterable[int] | None = None) -> Callable[[V], V]:
        add = self.corpus.versions(api, only=only)

        def decorate(script: V) -> V:
            add(_for_fleets(script))
            return script

        return decorate


def _for_fleets(script: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(script)
    def run(side: Side, *version: Any) -> None:
        assert isinstance(side, FleetSide)
        script(side, *version)

    return run
