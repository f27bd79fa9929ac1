"""Looks at the traffic of the partitions that this broker leads, so that hot ones can be told with their clients."""

import asyncio
from typing import Final

from logfleet.io.clock import monotonic_ms
from logfleet.io.slices import Slices
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.telemetry.flows import Flow, Flows, FlowSample

PERIOD_S: Final = 10.0
REST_S: Final = 0.01


class TrafficWatch:
    """Runs until it is cancelled."""

    def __init__(self, partitions: PartitionTable) -> None:
        self._partitions = partitions
        self._flows = Flows()

    def told(self) -> list[Flow]:
        """Over the last minute, the busiest first."""
        return self._flows.told()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Once at every partition, in slices."""
        slices = Slices(REST_S)
        led = set()
        for partition in list(self._partitions.led()):
            await slices.pause_if_due()
            key = partition.topic_id, partition.index
            led.add(key)
            self._flows.look(
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
