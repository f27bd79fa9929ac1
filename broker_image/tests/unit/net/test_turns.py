"""Many connections that pipeline, and one that does not."""

import asyncio
from pathlib import Path

import pytest
from logfleet.net.turns import REQUESTS_PER_STEP_MAX

from broker_image.tests.unit.net.connection_rig import framed, running
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


class Deaf(asyncio.Protocol):
    """A client that takes its answers and does not look at them."""


async def test_a_newcomer_is_served_after_a_few_turns_of_many_that_pipeline(
    tmp_path: Path, until: Until
) -> None:
    peers, backlog = 50, 4000
    async with running(tmp_path) as rig:
        loop = asyncio.get_running_loop()
        greedy = [
            (await loop.create_connection(Deaf, "127.0.0.1", rig.port))[0] for _ in range(peers)
        ]
        for transport in greedy:
            transport.write(framed(b"\0\1e") * backlog)
        await until(lambda: len(rig.listener.turns) == peers)
        before = len(rig.service.seen)
        async with rig.client() as newcomer:
            newcomer.send(b"\0\x12new")
            assert await newcomer.receive() == b"\0\x12new"
            served = rig.service.seen.index(b"\0\x12new") - before
        assert len(rig.listener.turns) >= peers - 1  # all of them were waiting all the time
        # some ten steps of the loop from connecting to the answer, and not ten turns of everybody
        assert served <= peers * REQUESTS_PER_STEP_MAX
        await until(lambda: len(rig.service.seen) == peers * backlog + 1)
        assert len(rig.listener.turns) == 0
        for transport in greedy:
            transport.close()
