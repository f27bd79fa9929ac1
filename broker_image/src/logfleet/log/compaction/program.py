"""The child process that compacts: `python -m logfleet.log.compaction.program`.

Each line of stdin is a CleaningJob in JSON; each line of stdout is an event: CleanedSegments, then
Cleaned or NotCleaned. It exits at the end of stdin, and runs at the lowest priority, as nobody
waits for it.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import BinaryIO, Final

import msgspec

from logfleet import NO_ASSERTIONS
from logfleet.io.files import Files, PosixFiles, is_shortage
from logfleet.log.compaction.round import (
    Cleaned,
    CleanedSegment,
    Cleaning,
    CleaningJob,
    Uncleanable,
)

NICENESS: Final = 19
SALT_BYTES: Final = 16


class NotCleaned(msgspec.Struct, frozen=True, tag=True):
    """The round ended early.

    is_lasting: a retry would fail too, because of the log's content or a bug. is_disk: the disk
    refuses to read or write, for another reason than a shortage of room or of file descriptors.
    """

    reason: str
    is_lasting: bool = False
    is_disk: bool = False


Event = CleanedSegment | Cleaned | NotCleaned


class Throttle:
    """Sleeps so that no more than `bytes_per_second` are accounted for in the long run."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._clock, self._sleep = clock, sleep
        self._free_at = clock()

    def account(self, count: int) -> None:
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)


def serve(files: Files, requests: BinaryIO, output: BinaryIO) -> None:
    """Run jobs until the input ends."""
    decoder = msgspec.json.Decoder(CleaningJob)
    encoder = msgspec.json.Encoder()

    def send(event: Event) -> None:
        output.write(encoder.encode(event) + b"\n")
        output.flush()

    for line in requests:
        job = decoder.decode(line)
        account = Throttle(job.bytes_per_second).account
        cleaning = Cleaning(files, job, salt=os.urandom(SALT_BYTES), account=account)
        try:
            for event in cleaning.run():
                send(event)
        except Uncleanable as error:
            send(NotCleaned(str(error), is_lasting=True))
        except FileNotFoundError as error:  # the broker has removed or renamed it
            send(NotCleaned(f"{error.filename} is gone"))
        except OSError as error:
            send(NotCleaned(str(error), is_disk=not is_shortage(error)))
        except MemoryError:
            send(NotCleaned("the cleaner's process found no memory"))
        except Exception:  # noqa: BLE001  a bug ends the round, other logs can still be cleaned
            send(NotCleaned(traceback.format_exc(), is_lasting=True))


def main() -> None:
    if NO_ASSERTIONS:
        sys.exit(NO_ASSERTIONS)
    os.nice(NICENESS)
    # A killed broker closes its pipes a moment before the tether kills this process: exit quietly
    # then.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    serve(PosixFiles(), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
