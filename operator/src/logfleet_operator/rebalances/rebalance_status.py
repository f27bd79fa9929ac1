"""What a Rebalance's status says of the plan and of how far it is."""

import math
from collections.abc import Mapping
from typing import Any, Final

from logfleet.control.balance.load import Plan, Skew
from logfleet.operations.rebalancing import Progress

NAMED_MAX: Final = 10
MIB: Final = 1024 * 1024


def proposal(plan: Plan) -> dict[str, Any]:
    """As the CRD has it."""
    largest = sorted(plan.moves, key=lambda move: (-move.bytes, move.topic, move.index))
    return {
        "moves": len(plan.moves),
        "bytes": plan.bytes,
        "leastBytes": plan.least_bytes,
        "skewBefore": _skew(plan.before),
        "skewAfter": _skew(plan.after),
        "unmet": list(plan.unmet[:NAMED_MAX]),
        "biggest": [
            f"{move.topic}-{move.index}: {_ids(move.before)} -> {_ids(move.after)}, "
            f"{move.bytes / MIB:.1f} MiB, {move.reason}"
            for move in largest[:NAMED_MAX]
        ],
    }


def proposed(plan: Plan) -> str:
    """In one sentence."""
    if not plan.moves:
        return "nothing is to be moved"
    return (
        f"{len(plan.moves)} partitions would change and {plan.bytes / MIB:.1f} MiB be copied; "
        "set spec.approved to true to have it done"
    )


def progress(
    made: Progress, before: Mapping[str, Any], bytes_planned: int, elapsed_s: float, throttle: int
) -> dict[str, Any]:
    """As the CRD has it. before: the one told last. bytes_planned: at the beginning. elapsed_s: since then. throttle: bytes per second.

    Minutes are told at the rate since the beginning; before anything is copied, at the throttle of one broker.
    """
    left = made.bytes_left + made.planned_bytes
    moved = max(before.get("bytesMoved", 0), bytes_planned - left)
    rate = moved / elapsed_s if moved and elapsed_s > 0 else throttle
    return {
        "underWay": made.under_way,
        "waiting": made.planned,
        "bytesMoved": moved,
        "bytesLeft": left,
        "minutesLeft": math.ceil(left / rate / 60),
    }


def running(made: Progress) -> str:
    """In one sentence, with what does not go."""
    said = f"{made.under_way} partitions move, {made.planned} wait, {(made.bytes_left + made.planned_bytes) / MIB:.1f} MiB are left"
    return "; ".join((said, *made.unmet[:3], *made.refused[:3]))


def done(made: Progress) -> str:
    """Also what could not be moved: then not all is where it should be."""
    left = [*made.unmet[:3], *made.refused[:3]]
    return "; ".join(("nothing more can be moved", *left)) if left else "all is where it should be"


def _skew(skew: Skew) -> str:
    return f"bytes {skew.bytes:.0%}, replicas {skew.replicas:.0%}, leaders {skew.leaders:.0%}"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
