"""The frames that the fuzzer sends, in an order that a seed fixes."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from logfleet.wire.apis import API_BY_NAME, Api
from logfleet.wire.codec import decode
from logfleet.wire.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from logfleet.wire.frame import SIZE_BYTES, decode_request_header, encode_request

from e2e.fuzz.mutations import mutate, nonsense
from e2e.fuzz.values import Requests, World

VALUES, BYTES, BATCHES, NONSENSE = "values", "bytes", "batches", "nonsense"
CROWDS = "crowds"  # sent by themselves: see `over_tcp`
KINDS: Final = (VALUES, VALUES, BYTES, BYTES, BATCHES, NONSENSE)
CORRELATION_ID: Final = 1


class Input(NamedTuple):
    """frame: without its size. api, version: as its header says; api is None if it is not served. header: it can be read."""

    kind: str
    frame: bytes
    api: Api | None
    version: int
    well_formed: bool
    header: bool = True


def inputs(served: Sequence[tuple[Api, int]], world: World, dice: random.Random) -> Iterator[Input]:
    """Without end; every API and version in turn within each kind. served: what the broker advertises."""
    requests, turns = Requests(dice, world), Counter[str]()
    while True:
        for kind in KINDS:
            api, version = served[turns[kind] % len(served)]
            turns[kind] += 1
            if kind == BATCHES:
                api, version = API_BY_NAME["Produce"], dice.randrange(3, 14)
            yield classify(kind, _frame(kind, api, version, requests, dice), served)


def _frame(kind: str, api: Api, version: int, requests: Requests, dice: random.Random) -> bytes:
    if kind == NONSENSE:
        return nonsense(dice)
    while True:
        try:
            parts = encode_request(requests.draw(api, version), version, CORRELATION_ID, "fuzz")
            break
        except UnencodableMessage:  # a float in an array of ints, or the like
            continue
    frame = b"".join(parts)[SIZE_BYTES:]  # type: ignore[arg-type]
    return mutate(frame, dice) if kind == BYTES else frame


def classify(kind: str, frame: bytes, served: Sequence[tuple[Api, int]]) -> Input:
    """What the broker must make of the frame."""
    view = memoryview(frame)
    try:
        header, position = decode_request_header(view)
    except (MalformedMessage, UnsupportedVersion):
        return Input(kind, frame, None, 0, well_formed=False, header=False)
    for api, version in served:
        if (api.key, version) == (header.api_key, header.api_version):
            try:
                decode(api.request, version, view, position)
            except MalformedMessage:
                return Input(kind, frame, api, version, well_formed=False)
            return Input(kind, frame, api, version, well_formed=True)
    return Input(kind, frame, None, header.api_version, well_formed=False)
