"""What a broker may do with an input, and the count of what it did."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from logfleet.wire.apis import API_BY_NAME, API_VERSIONS_KEY
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.frame import decode_response

from e2e.fuzz.inputs import Input

ANSWERED, CLOSED, SILENT = "answered", "closed", "silent"
MAY_WAIT: Final = frozenset({"Produce", "Fetch", "JoinGroup", "SyncGroup"})
"""APIs that may take their time: until records come, or members, or, with acks=0, for ever."""
MAY_CLOSE: Final = frozenset({"Produce", "DescribeAcls", "CreateAcls", "DeleteAcls"})
"""Where Kafka closes for what can be read: Produce with acks=0 and an error (KafkaApis.handleProduceRequest) or with null records; ACLs
of kinds that no request may name (the constructors of DescribeAclsRequest and the others throw)."""


@dataclass
class Tally:
    """outcomes: by kind of input and what came of it. apis: (API, version) that got a well-formed request."""

    inputs: int = 0
    input_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    apis: set[tuple[str, int]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def judge(self, given: Input, outcome: str, answer: bytes | None = None) -> None:
        """answer: the frame without its size."""
        self.inputs += 1
        self.input_bytes += len(given.frame)
        self.outcomes[f"{given.kind} {outcome}"] += 1
        if given.well_formed:
            assert given.api is not None
            self.apis.add((given.api.name, given.version))
        fault = fault_of(given, outcome, answer)
        if fault is not None:
            self.fault(given, fault)

    def fault(self, given: Input, text: str) -> None:
        """Noted with what brings it about."""
        name = given.api.name if given.api is not None else "no API"
        self.faults.append(f"{name} {given.version} ({given.kind}): {text}: {given.frame.hex()}")


def fault_of(given: Input, outcome: str, answer: bytes | None) -> str | None:
    """What is wrong with the outcome, None if nothing is."""
    if is_unknown_api_versions(given):
        return None if outcome == ANSWERED else f"{outcome} instead of told the versions"
    if not given.well_formed:
        return None if outcome == CLOSED else f"{outcome} instead of closed"
    assert given.api is not None
    name = given.api.name
    match outcome:
        case "closed":
            return None if name in MAY_CLOSE else "closed instead of answered"
        case "silent":
            return None if name in MAY_WAIT else "not answered"
    assert answer is not None
    try:
        decode_response(given.api, given.version, memoryview(answer))
    except MalformedMessage as error:
        return f"the answer cannot be read: {error}"
    return None


def is_unknown_api_versions(given: Input) -> bool:
    """ApiVersions of a version that is not served: answered all the same (KIP-511)."""
    api = API_BY_NAME["ApiVersions"]
    key = int.from_bytes(given.frame[:2], "big")
    return given.header and key == API_VERSIONS_KEY and not api.serves(given.version)
