"""One real broker, as a test sees it."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any, Final, Self

from logfleet.node.tools.loopback_ports import LoopbackPorts
from logfleet.testing.errors import OrderFailed, ProcessEnded
from logfleet.testing.faults.disturbing import LONG_S, Disturbed
from logfleet.testing.kafka import TIMEOUT_S
from logfleet.testing.prepared import Child, Prepared
from logfleet.testing.settings import LOOPBACK, broker_settings, is_synced

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0
LOG_LINES: Final = 50
"""What a failed test shows of a broker's log."""


class Broker(Disturbed):
    """A broker on a free port, with a directory of its own; a context manager that serves inside.

    config: Kafka's keys, over those of `testing.settings`. topics: name -> partitions, created at
    the start. directory: None for a new one, which is removed at the end unless `keep` is set. Port
    and data stay over `kill` and `restart`. Times are seconds.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        directory: Path | None = None,
        broker_id: int = 1,
        prepared: Prepared | None = None,
    ) -> None:
        self._ports = LoopbackPorts()
        self.port = self._ports.reserve()
        super().__init__(f"{LOOPBACK}:{self.port}", prepared)
        self.id = broker_id
        self.directory = directory or Path(tempfile.mkdtemp(prefix="logfleet-"))
        self.keep = directory is not None
        self.paused = False
        self.admin = ""
        self.config: dict[str, str] = {
            **broker_settings(broker_id, self.port, str(self.directory / f"data-{broker_id}")),
            **(config or {}),
        }
        self._topics = dict(topics or {})
        self._child: Child | None = None
        self._ahead_ms = 0

    def __enter__(self) -> Self:
        try:
            self.start()
            self.create_topics(self._topics)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the process

    @property
    def pid(self) -> int:
        """Of the newest process; it may have ended."""
        return self._process().pid

    @property
    def running(self) -> bool:
        """Whether it was started and not ended by a method of this object; it may be paused."""
        return self._child is not None and self._child.exit_code is None

    @property
    def answers(self) -> bool:
        """Whether it runs and is not paused."""
        return self.running and not self.paused

    def start(self) -> None:
        """Start it, and wait until it serves. Raises OrderFailed with its reason."""
        self.launch()
        self.wait_started()

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.running, f"broker {self.id} runs already"
        self.paused = False
        settings = {
            "config": self.config,
            "synced": is_synced(),
            "ahead_ms": self._ahead_ms,
        }
        self._child = self._prepared.fork(
            "broker",
            f"broker {self.id}",
            self.log_path,
            settings=settings,
            directory=None if self.keep else str(self.directory),
        )

    def wait_started(self) -> None:
        """Wait until it serves. Raises OrderFailed with its reason, then it has ended."""
        try:
            where = self._process().started(START_S_MAX)
        except ProcessEnded as error:
            raise OrderFailed(f"{error}; the end of {self.log_path}:\n{self.log_tail()}") from error
        self.admin = where["admin"] or ""

    def kill(self) -> None:
        """SIGKILL; it has ended when this returns."""
        self._process().kill()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing is answered until `resume`."""
        self._process().send(Signals.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._process().send(Signals.SIGCONT)
        self.paused = False

    def stop(self) -> None:
        """Stop it in order, as a roll of a fleet does."""
        if self.paused:
            self.resume()
        code = self._process().stop(STOP_S_MAX)
        if code:
            raise OrderFailed(f"broker {self.id} ended with {code}:\n{self.log_tail()}")

    def restart(self) -> None:
        """Stop it in order, if it runs, and start it again on the same port and data."""
        if self.running:
            self.stop()
        self.start()

    def close(self) -> None:
        """End it, and remove its directory unless `keep` is set."""
        if self._child is not None:
            self._child.kill()
        self._ports.release()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        elif self._child is not None:
            with suppress(ProcessEnded):
                self._prepared.order("keep", directory=str(self.directory))

    # --- what it shows

    @property
    def data(self) -> Path:
        """Its first log directory."""
        return Path(self.config["log.dirs"].partition(",")[0])

    @property
    def log_path(self) -> Path:
        return self.directory / f"broker-{self.id}.log"

    @property
    def log(self) -> str:
        """What it has logged, since its first start."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.splitlines()[-LOG_LINES:])

    def events(self, **query: Any) -> list[dict[str, Any]]:
        """What it decided and why, oldest first, as `logfleet events` shows.

        query: since (ms), topic, partition, broker, kind (a list) select. Raises OrderFailed if it
        does not run, or is paused.
        """
        found: list[dict[str, Any]] = self.order("events", query=query)
        return found

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = TIMEOUT_S) -> "Broker":
        """Itself, once the partition has a leader: as in a fleet."""
        self.leader_id(topic, partition, timeout_s=timeout_s)
        return self

    def order(self, do: str, *, timeout_s: float = TIMEOUT_S, **arguments: Any) -> Any:
        """The result of an order of `testing.broker_child.ORDERS`. Raises OrderFailed."""
        if not self.answers:
            raise OrderFailed(f"broker {self.id} {'is paused' if self.paused else 'does not run'}")
        return self._process().ask(do, timeout_s=timeout_s, **arguments)

    def _disturbed(self) -> "Sequence[Broker]":
        return [self]

    def advance_by(self, ms: int) -> None:
        """Have its wall clock be later; see `advance`."""
        self._ahead_ms += ms
        if self.answers:
            self.order("advance", timeout_s=LONG_S, ms=ms)

    def _process(self) -> Child:
        if self._child is None:
            raise OrderFailed(f"broker {self.id} was never started")
        return self._child
