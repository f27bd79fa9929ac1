"""What befalls the operator at one of its calls to a World: death, a lost answer, no connection."""

import pytest
from logfleet_operator.kube import KubeUnavailable

from .world import Death, World


def die_after(world: World, number: int) -> None:
    """Let the operator die right after its call with this number took effect."""

    def check(made: int) -> None:
        if made == number:
            raise Death

    world.after_call = check


def lose_answer_of(world: World, number: int) -> None:
    """Let the answer to this call get lost: it took effect, and nobody knows."""

    def check(made: int) -> None:
        if made == number:
            raise KubeUnavailable("connection reset")

    world.after_call = check


def refuse(world: World, number: int) -> None:
    """Let this call fail without effect."""

    def check(made: int) -> None:
        if made == number:
            raise KubeUnavailable("connection refused")

    world.before_call = check


DISTURBANCES = (
    die_after,
    pytest.param(lose_answer_of, marks=pytest.mark.full),
    pytest.param(refuse, marks=pytest.mark.full),
)
"""The first two leave a change that was made without its answer; in a full run, all are tried."""
