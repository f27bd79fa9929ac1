"""Asking brokers within a bounded time; what fails becomes a gap."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar

from logfleet.checks.snapshot import Gap, Part
from logfleet.client.errors import ClientError

T = TypeVar("T")


class Asking:
    """gaps: gets what could not be asked. seconds_max: for all questions together, from now on."""

    def __init__(self, seconds_max: float, gaps: list[Gap]) -> None:
        self.gaps = gaps
        self._seconds_max = seconds_max
        self._deadline = asyncio.get_running_loop().time() + seconds_max

    async def part(self, part: Part, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """The answer, or `otherwise` and a gap."""
        found = await self._answer(part, None, ask)
        return otherwise if found is None else found

    async def of_each(
        self, part: Part, brokers: Collection[int], ask: Callable[[int], Awaitable[T]]
    ) -> dict[int, T]:
        """The answers of these brokers by id, asked at the same time.

        A broker without one is a gap, and so is the whole part if none has one.
        """
        asked = [self._answer(part, broker, partial(ask, broker)) for broker in brokers]
        answers = dict(zip(brokers, await asyncio.gather(*asked), strict=True))
        found = {broker: answer for broker, answer in answers.items() if answer is not None}
        if not found:
            reason = next(
                (gap.reason for gap in self.gaps if gap.part is part), "no broker answers"
            )
            self.gaps.append(Gap(part, reason))
        return found

    async def _answer(
        self, part: Part, broker: int | None, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await ask()
        except ClientError as error:
            self.gaps.append(Gap(part, str(error), broker))
        except TimeoutError:
            self.gaps.append(Gap(part, f"no answer within {self._seconds_max:g} s", broker))
        return None
