"""Samples the traffic of partitions led here, to report the busiest and their clients."""

import asyncio
from typing import Final

from logfleet.io.clock import monotonic_ms
from logfleet.io.slices import Slices
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.telemetry.flows import Flows, FlowSample

PERIOD_S: Final = 10.0
REST_S: Final = 0.01


class TrafficWatch:
    """Samples traffic into `flows` periodically until cancelled."""

    def __init__(self, partitions: PartitionTable, flows: Flows) -> None:
        self._partitions = partitions
        self._flows = flows

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(PERIOD_S)

    async def sample(self) -> None:
        """Sample every partition once, in slices."""
        slices = Slices(REST_S)
        led = set()
        for partition in list(self._partitions.led()):
            await slices.pause_if_due()
            key = partition.topic_id, partition.index
            led.add(key)
            self._flows.add_sample(
                key,
                monotonic_ms(),
                FlowSample(
                    partition.topic,
                    partition.index,
                    partition.leader_epoch,
                    partition.bytes_in,
                    partition.bytes_out,
                    partition.last_writer,
                    partition.last_reader,
                ),
            )
        self._flows.keep(led)
