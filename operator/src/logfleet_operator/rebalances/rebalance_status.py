"""The status of a Rebalance: the plan, and the progress."""

import math
from collections.abc import Mapping
from typing import Any, Final

from logfleet.balance.load import Plan, Skew
from logfleet.balance.rebalancing import Progress

NAMED_MAX: Final = 10
MIB: Final = 1024 * 1024


def proposal(plan: Plan) -> dict[str, Any]:
    """The plan in the form of the CRD."""
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
    """The plan in one sentence."""
    if not plan.moves:
        return "nothing is to be moved"
    return (
        f"{len(plan.moves)} partitions would change and {plan.bytes / MIB:.1f} MiB be copied; "
        "set spec.approved to true to have it done"
    )


def progress(
    made: Progress, before: Mapping[str, Any], bytes_planned: int, elapsed_s: float, throttle: int
) -> dict[str, Any]:
    """The progress in the form of the CRD.

    before: the last one reported. bytes_planned: at the start. elapsed_s: since then. throttle:
    bytes per second.

    minutesLeft assumes the rate since the start; before anything is copied, one broker's throttle.
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
    """The progress in one sentence, with what cannot be moved."""
    sentence = (
        f"{made.under_way} partitions move, {made.planned} wait, "
        f"{(made.bytes_left + made.planned_bytes) / MIB:.1f} MiB are left"
    )
    return "; ".join((sentence, *made.unmet[:3], *made.refused[:3]))


def done(made: Progress) -> str:
    """The end in one sentence, with what could not be moved."""
    left = [*made.unmet[:3], *made.refused[:3]]
    return "; ".join(("nothing more can be moved", *left)) if left else "all is where it should be"


def _skew(skew: Skew) -> str:
    return f"bytes {skew.bytes:.0%}, replicas {skew.replicas:.0%}, leaders {skew.leaders:.0%}"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
