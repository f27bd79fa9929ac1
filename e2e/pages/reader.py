"""The command blocks of a page, run in order as a reader types them: each in a bare shell of its own.

A block is left out where the line before it names Kubernetes, or is a comment `run: never: REASON`.
One whose last line says `until Ctrl-C` runs on beside the next ones, as in a terminal of its own; it
gets Ctrl-C before the next such block, and at the end. A page may begin with a comment `with:
COMMAND`: its readers have that running, and the environment of the clone. Run it where a fresh clone
is, and ports 9092 and 9644 are free:

    python -m e2e.pages.reader README.md
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = re.compile(r"([^\n]+)\n+```sh\n(.*?)```", re.DOTALL)
ELSEWHERE: Final = ("Kubernetes", "<!-- run: never: ")
RUNS_ON: Final = "until Ctrl-C"
WITH: Final = re.compile(r"^<!-- with: (.*) -->$", re.MULTILINE)
ACTIVATE: Final = "source .venv/bin/activate\n"
READY: Final = (".venv/bin/logfleet", "cluster", "--timeout", "1")
READY_S_MAX: Final = 120.0
BLOCK_S_MAX: Final = 300.0
STOP_S_MAX: Final = 60.0
POLL_S: Final = 0.2
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Block(NamedTuple):
    """lead: the last line of the paragraph before it."""

    lead: str
    commands: str

    @property
    def is_for_here(self) -> bool:
        return not any(each in self.lead for each in ELSEWHERE)

    @property
    def runs_on(self) -> bool:
        return RUNS_ON in self.commands.rstrip().splitlines()[-1]


def blocks(page: str) -> list[Block]:
    """All of its shell blocks, in order; first what the page is read with."""
    found = [Block(lead, commands) for lead, commands in BLOCK.findall(page)]
    running = WITH.search(page)
    if running is None:
        return found
    first = Block("With", f"{running[1]}   # {RUNS_ON}\n")
    return [Block(lead, ACTIVATE + commands) for lead, commands in [first, *found]]


def bare() -> dict[str, str]:
    """What a new login has."""
    return {"PATH": PATH, "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}


def shell(block: Block) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", block.commands],
        env=bare(),
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def until_ready(running: subprocess.Popen[str]) -> None:
    give_up_s = time.monotonic() + READY_S_MAX
    while subprocess.run(READY, env=bare(), capture_output=True, check=False).returncode:
        assert running.poll() is None, "what runs until Ctrl-C has ended"
        assert time.monotonic() < give_up_s, f"no broker answers after {READY_S_MAX} s"
        time.sleep(POLL_S)


def end(running: subprocess.Popen[str] | None) -> None:
    """By Ctrl-C, which all programs of that terminal get."""
    if running is not None:
        os.killpg(running.pid, signal.SIGINT)
        code = running.wait(STOP_S_MAX)
        assert code in {0, 130, -signal.SIGINT}, f"ended with {code} after Ctrl-C"


def ran(page: str) -> Iterator[Block]:
    """Each block that is for here, once it is done. Raises AssertionError, CalledProcessError."""
    running: subprocess.Popen[str] | None = None
    for block in blocks(page):
        if not block.is_for_here:
            continue
        if block.runs_on:
            end(running)
            running = shell(block)
            until_ready(running)
        else:
            with shell(block) as process:
                code = process.wait(BLOCK_S_MAX)
            if code:
                raise subprocess.CalledProcessError(code, block.commands)
        yield block
    end(running)


def loopback_up() -> None:
    """Loopback alone, and this machine's own name leads there: Spark binds to it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    address = socket.gethostbyname(socket.gethostname())
    if not address.startswith("127."):
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)


def main(page: Path) -> None:
    loopback_up()
    for number, block in enumerate(ran(page.read_text()), 1):
        print(f"--- block {number} is done: {block.lead}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
