"""A rule of the product, or a step of the simulation's shell, that is broken on purpose, and the seeds that find it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from broker_image.tests.sim.simulation import drawn_case, run

SEEDS_MAX = 2_000


class Mutant(msgspec.Struct, frozen=True):
    """seed: one that finds it, tried first; None if only a scenario of test_scenarios.py does.

    also: modules that call the same function by a name of their own. beside: broken with it, where
    one rule alone covers for the other.
    """

    name: str
    where: Any
    attribute: str
    made: Callable[[Any], Any]
    seed: int | None = 0
    also: tuple[Any, ...] = ()
    beside: tuple["Mutant", ...] = ()


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """While this lasts the rule is not kept."""
    with ExitStack() as others:
        for each in mutant.beside:
            others.enter_context(broken(each))
        with _replaced(mutant):
            yield


@contextmanager
def _replaced(mutant: Mutant) -> Iterator[None]:
    places = (mutant.where, *mutant.also)
    rules = [place.__dict__[mutant.attribute] for place in places]
    for place, rule in zip(places, rules, strict=True):
        setattr(place, mutant.attribute, mutant.made(rule))
    try:
        yield
    finally:
        for place, rule in zip(places, rules, strict=True):
            setattr(place, mutant.attribute, rule)


def found(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first of the seeds that fails with it, and how."""
    with broken(mutant):
        for seed in seeds:
            failure = run(drawn_case(seed)).failure
            if failure is not None:
                return seed, failure
    return None
