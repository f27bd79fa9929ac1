"""Cases on one subject, together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from logfleet.wire.apis import API_BY_NAME

from e2e.compare.case import Case, Script
from e2e.compare.runs import Oracle, Tally
from e2e.compare.side import Side

VersionScript = Callable[[Side, int], None]
S = TypeVar("S", bound=Script)
V = TypeVar("V", bound=VersionScript)


class Playable(Protocol):
    """What can be done to both brokers and counted."""

    @property
    def name(self) -> str: ...

    def play(self, oracle: Oracle, wanted: Callable[[str], bool], tally: Tally) -> None:
        """Run what is wanted by its name (CORPUS/CASE) and tell of differences as they come."""


@dataclass
class Corpus:
    """Cases on one subject. exact_texts: error messages are compared word by word."""

    name: str
    cases: list[Case] = field(default_factory=list)
    exact_texts: bool = False

    def play(self, oracle: Oracle, wanted: Callable[[str], bool], tally: Tally) -> None:
        for case in self.cases:
            if wanted(f"{self.name}/{case.name}"):
                oracle.tell(oracle.judge(self.name, case, tally))

    def case(self, script: S) -> S:
        """Decorator: the function is a case, called after it."""
        self.add(_name(script), script)
        return script

    def versions(self, api: str, *, only: Iterable[int] | None = None) -> Callable[[V], V]:
        """Decorator: the function is a case for each version of that API that is served."""

        def add(script: V) -> V:
            for version in versions_of(api) if only is None else only:
                self.add(f"{_name(script)}-v{version}", _of(script, version))
            return script

        return add

    def add(self, name: str, script: Script) -> None:
        self.cases.append(Case(name, script, self.exact_texts))


def versions_of(api: str) -> range:
    """All versions that Kafka serves."""
    found = API_BY_NAME[api]
    return range(found.served_min, found.max_version + 1)


def _name(script: Callable[..., None]) -> str:
    return script.__name__.replace("_", "-")


def _of(script: VersionScript, version: int) -> Script:
    def run(side: Side) -> None:
        script(side, version)

    return run
