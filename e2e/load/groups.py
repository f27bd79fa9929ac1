"""Consumer groups whose members are processes (e2e.load.group_member): what each owns, what it read and committed.

group = MemberGroup(rig, broker.bootstrap, "numbers", partitions=6, client="aiokafka")
first, second = group.join(), group.join()
group.wait_balanced()               # the partitions are shared out evenly
second.kill()
"""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, TopicPartition

from e2e.harness.images import ROOT
from e2e.harness.processes import Rig
from e2e.harness.program import Program
from e2e.load.group_member import Settings

PATIENCE_S = 60.0
GROUP = "readers"


class Member(Program):
    """owned: the partitions that it has now.

    assignments: how many times they changed. read: (partition, value) in the order of reading.
    """

    def __init__(self, directory: Path, name: str, settings: Settings) -> None:
        command = [sys.executable, "-m", "e2e.load.group_member"]
        command.append(msgspec.json.encode(settings).decode())
        super().__init__(name, command, directory, {**os.environ, "PYTHONPATH": str(ROOT)})
        self.settings = settings
        self.owned: frozenset[int] = frozenset()
        self.assignments = 0
        self.read: list[tuple[int, int]] = []
        self._committed = 0
        self._position = 0

    @property
    def uncommitted(self) -> list[tuple[int, int]]:
        """Return the records that it has read but not committed."""
        return self.read[self._committed :]

    def listen(self) -> None:
        """Take in what the process has reported since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._position)
            said = log.read()
        whole = said[: said.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                self._hear(msgspec.json.decode(line))

    def _hear(self, event: dict[str, Any]) -> None:
        if "owns" in event:
            self.owned = frozenset(event["owns"])
            self.assignments += 1
        elif "read" in event:
            partition, value = event["read"]
            self.read.append((partition, value))
        else:
            self._committed = event["committed"]


class MemberGroup:
    """A group on one topic. members: all that ever joined, including those that left."""

    def __init__(
        self, rig: Rig, bootstrap: str, topic: str, *, partitions: int, **settings: Any
    ) -> None:
        self._rig = rig
        self._partitions = partitions
        self._bootstrap, self._topic = bootstrap, topic
        self._settings = Settings(bootstrap=bootstrap, topic=topic, group=GROUP, **settings)
        self.members: list[Member] = []

    def join(self, **settings: Any) -> Member:
        """Start a new member. settings: those that differ from the group's."""
        name = f"member-{len(self.members) + 1}"
        own = msgspec.structs.replace(self._settings, **settings)
        member = self._rig.own(Member(self._rig.directory / name, name, own))
        member.launch()
        self.members.append(member)
        return member

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Listen to all members until `holds`. Raises AssertionError after PATIENCE_S."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            for member in self.members:
                member.listen()
            if holds():
                return
            if time.monotonic() > give_up_s:
                self._tell_stacks()
                raise AssertionError(f"not in time: {what}\n{self._shares()}")
            time.sleep(0.02)

    def _tell_stacks(self) -> None:
        """Have every member write its stacks to its log; the rig prints the ends of the logs."""
        for member in self.members:
            if member.running:
                os.kill(member.pid, signal.SIGUSR1)

    def wait_balanced(self) -> None:
        """Return when the running members share all partitions evenly."""
        self.wait(self._is_balanced, "an even share for each member")

    def _is_balanced(self) -> bool:
        shares = [member.owned for member in self.members if member.running]
        sizes = [len(share) for share in shares]
        return (
            sum(sizes) == self._partitions
            and len(frozenset[int]().union(*shares)) == self._partitions
            and max(sizes) - min(sizes) <= 1
        )

    def wait_read(self, records: set[tuple[int, int]]) -> None:
        """Return when these records were read."""
        self.wait(lambda: records <= self.times_read().keys(), f"{len(records)} records")

    def leave(self) -> None:
        """All running members leave in order."""
        for member in self.members:
            if member.running:
                code = member.terminate()
                assert code == 0, f"{member.name} ended with {code}"
        self.wait(lambda: True, "their last words")

    def committed(self) -> list[int]:
        """The group's offset in each partition."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP})
        wanted = [TopicPartition(self._topic, index) for index in range(self._partitions)]
        found = consumer.committed(wanted, timeout=PATIENCE_S)
        consumer.close()
        return [each.offset for each in found]

    def times_read(self) -> Counter[tuple[int, int]]:
        """How often each record was read, by all members together."""
        return Counter(record for member in self.members for record in member.read)

    def read_again(self) -> set[tuple[int, int]]:
        """Records that were read more than once."""
        return {record for record, times in self.times_read().items() if times > 1}

    def _shares(self) -> str:
        return "\n".join(
            f"{member.name}: owns {sorted(member.owned)}, read {len(member.read)}, "
            f"{'runs' if member.running else f'ended with {member.exit_code}'}"
            for member in self.members
        )
