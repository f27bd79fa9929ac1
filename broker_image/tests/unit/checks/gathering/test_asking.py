"""Answers, and what becomes of those that do not come."""

import asyncio
from functools import partial

import pytest
from logfleet.checks.gathering.asking import Asking
from logfleet.checks.snapshot import Gap, Part
from logfleet.client.errors import ConnectionLost

pytestmark = pytest.mark.asyncio


async def answer(broker: int) -> str:
    if broker == 2:
        raise ConnectionLost("it is down")
    if broker == 3:
        await asyncio.Event().wait()
    return f"of {broker}"


async def test_brokers_that_fail_are_gaps_and_the_others_count() -> None:
    asking = Asking(0.05, [])
    assert await asking.of_each(Part.DISKS, [1, 2, 3], answer) == {1: "of 1"}
    assert sorted(asking.gaps, key=lambda gap: gap.broker or 0) == [
        Gap(Part.DISKS, "it is down", 2),
        Gap(Part.DISKS, "no answer within 0.05 s", 3),
    ]


async def test_a_part_that_no_broker_answers_is_missing_as_a_whole() -> None:
    asking = Asking(10, [])
    assert await asking.of_each(Part.DISKS, [2], answer) == {}
    assert asking.gaps == [Gap(Part.DISKS, "it is down", 2), Gap(Part.DISKS, "it is down")]
    assert await Asking(10, []).of_each(Part.DISKS, [], answer) == {}


async def test_a_part_that_fails_has_the_value_for_that() -> None:
    asking = Asking(10, [])
    assert await asking.part(Part.CONFIGS, partial(answer, 2), "nothing") == "nothing"
    assert await asking.part(Part.CONFIGS, partial(answer, 1), "nothing") == "of 1"
    assert asking.gaps == [Gap(Part.CONFIGS, "it is down")]
