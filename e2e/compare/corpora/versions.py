"""Every API that we advertise in every version, with values as a client sends them.

The requests are those of `e2e.compare.talks`: later ones work on what earlier ones made.
"""

from typing import Any

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_KEY, API_BY_NAME, Api

from e2e.compare.case import Case, Script
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side
from e2e.compare.talks import TALKS, play
from e2e.compare.world import World


def advertised(side: Side) -> dict[int, tuple[int, int]]:
    """API key -> first and last version."""
    answer = side.get(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def talks(ours: Side) -> Corpus:
    """One case per API and version that `ours` advertises, and one beyond either end of its versions."""
    rows = advertised(ours)
    worlds: dict[str, World] = {}
    corpus = Corpus("versions", [Case("begin", _beginning(worlds))])
    for api in (API_BY_NAME[name] for name in TALKS):
        if api.key in rows:
            corpus.cases += [
                Case(f"{api.name}-v{version}", _talk(api, version, worlds))
                for version in range(api.served_min, rows[api.key][1] + 1)
            ]
    for key, (_, last) in rows.items():
        corpus.cases.append(
            Case(f"{API_BY_KEY[key].name}-unserved", _unserved(API_BY_KEY[key], last))
        )
    return corpus


def _beginning(worlds: dict[str, World]) -> Script:
    """What the talks need on each side."""

    def run(side: Side) -> None:
        worlds[side.product] = World(side)

    return run


def _talk(api: Api, version: int, worlds: dict[str, World]) -> Script:
    def run(side: Side) -> None:
        def ask(request: msgspec.Struct, own: int) -> Any:
            answer = side.settle(request, own)
            side.await_changes_after(type(request))
            return answer

        play(api, version, worlds[side.product], ask)

    return run


def _unserved(api: Api, last: int) -> Script:
    """Versions that nobody serves: the connection is closed, only ApiVersions is answered (KIP-511)."""

    def run(side: Side) -> None:
        for version in {api.served_min - 1, last + 1} - {-1}:
            if last < api.max_version and version == last + 1:
                continue  # what is not served here is one line of what ApiVersions tells
            head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
            side.raw(api.name, version, head + b"\0\0\0\7\xff\xff\0\0")

    return run
