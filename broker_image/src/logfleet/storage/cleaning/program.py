"""The child process that compacts: `python -m logfleet.storage.cleaning.program`.

Each line of its input is a CleaningJob in JSON, each line of its output what came of it: CleanedSegments, then Cleaned or NotCleaned.
It ends with its input. Nobody waits for it: it runs at the lowest priority.
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
from logfleet.storage.cleaning.round import (
    Cleaned,
    CleanedSegment,
    Cleaning,
    CleaningJob,
    Uncleanable,
)

NICENESS: Final = 19
SALT_BYTES: Final = 16


class NotCleaned(msgspec.Struct, frozen=True, tag=True):
    """The round ended early. is_lasting: it would again, for what is in the log or a bug; anything else passes.

    is_disk: the disk refuses to read or write, for another reason than a shortage of room or of file descriptors.
    """

    reason: str
    is_lasting: bool = False
    is_disk: bool = False


Event = CleanedSegment | Cleaned | NotCleaned


class Throttle:
    """Sleeps so that not more than `bytes_per_second` are accounted for in the long run."""

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


def serve(files: Files, requests: BinaryIO, answers: BinaryIO) -> None:
    """Carry out jobs until there are no more."""
    decoder = msgspec.json.Decoder(CleaningJob)
    encoder = msgspec.json.Encoder()

    def answer(event: Event) -> None:
        answers.write(encoder.encode(event) + b"\n")
        answers.flush()

    for line in requests:
        job = decoder.decode(line)
        account = Throttle(job.bytes_per_second).account
        cleaning = Cleaning(files, job, salt=os.urandom(SALT_BYTES), account=account)
        try:
            for event in cleaning.run():
                answer(event)
        except Uncleanable as error:
            answer(NotCleaned(str(error), is_lasting=True))
        except FileNotFoundError as error:  # the broker has removed or renamed it
            answer(NotCleaned(f"{error.filename} is gone"))
        except OSError as error:
            answer(NotCleaned(str(error), is_disk=not is_shortage(error)))
        except MemoryError:
            answer(NotCleaned("the cleaner's process found no memory"))
        except Exception:  # noqa: BLE001  a bug ends the round, not the broker's ability to clean other logs
            answer(NotCleaned(traceback.format_exc(), is_lasting=True))


def main() -> None:
    if NO_ASSERTIONS:
        sys.exit(NO_ASSERTIONS)
    os.nice(NICENESS)
    # A broker that is killed closes its pipes a moment before the tether kills this process, which then has nobody to tell.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    serve(PosixFiles(), sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
