"""`logfleet broker`: run one broker until it is stopped."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import structlog

from logfleet.client.metadata import bracketed
from logfleet.config.broker import BrokerConfig, ConfigError, broker_config
from logfleet.config.server_properties.environment import keys_in
from logfleet.config.server_properties.text import read_properties
from logfleet.io import descriptors
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer, KernelTimer, Unavailable
from logfleet.io.logging import start_logging, write_plainly
from logfleet.node.broker import Broker, StartError

EXIT_FAILED: Final = 1
# A young collection starts after this many more container allocations than frees; requests free
# their own.
GC_THRESHOLDS: Final = (50_000, 20, 100)

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(command: Command) -> Command:
    """The options of `read_config`, for every command about one broker's configuration."""
    overrides = click.option(
        "--override",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set a key, whatever the file says. May be given again and again.",
    )
    environment = click.option(
        "--env-prefix",
        default="",
        metavar="PREFIX",
        help="Take keys from the environment as Apache Kafka's image does: with KAFKA_, "
        "KAFKA_LOG_DIRS sets log.dirs (two underscores "
        "are one, three a dash). They go before the file's, and --override before them.",
    )
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    argument = click.argument("properties", required=False, type=file)
    return argument(overrides(environment(command)))


def _log() -> Any:
    return structlog.get_logger(__name__)


@click.command()
@config_options
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least severity of the lines on stderr (JSON unless that is a terminal).",
)
def broker(
    properties: Path | None, overrides: tuple[str, ...], env_prefix: str, log_level: str
) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    PROPERTIES is a Kafka server.properties: node.id, listeners, advertised.listeners, log.dirs,
    broker.rack and the rest mean what they mean there. With nothing given the broker has id 1,
    listens on 127.0.0.1:9092, keeps its data, cluster metadata included, in ./logfleet-data, and
    serves health, metrics, events and may-i at http://127.0.0.1:9644 (or at a free port, if that
    one is taken).

    \b
    logfleet broker
    logfleet broker server.properties --override log.retention.hours=1
    KAFKA_NODE_ID=1 logfleet broker --env-prefix KAFKA_

    On a terminal the start ends with a line that begins with "ready:". Elsewhere all lines are
    JSON, and the event broker_started has the same.

    Exit code 0 after an orderly stop, 1 if the broker cannot start or go on.
    """
    gc.disable()  # until it has started: hardly anything created before is garbage
    try:
        config = read_config(properties, overrides, env_prefix)
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error
    listener = start_logging(log_level)
    try:
        problem = descriptors.raise_limit()
        if problem is not None:
            _log().warning("file_descriptors_not_raised", reason=problem)
        # Programs find all of it in the event broker_started, as every line of theirs is JSON.
        is_read = sys.stderr is not None and sys.stderr.isatty()
        on_ready = partial(write_plainly, listener) if is_read else None
        with contextlib.closing(timer_of(config)) as timer:
            sys.exit(run(serve(config, timer, on_ready)))
    finally:
        listener.stop()


def read_config(
    properties: Path | None, overrides: tuple[str, ...], env_prefix: str = ""
) -> BrokerConfig:
    """The broker's configuration. Raises ConfigError, OSError.

    Overrides go before the environment, which goes before the file; variables are resolved.
    env_prefix: of environment variables that are keys; empty for none.
    """
    keys: dict[str, str] = {}
    if properties is not None:
        keys |= read_properties(properties.read_bytes())
    if env_prefix:
        keys |= keys_in(os.environ, env_prefix)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(key, f"--override {override}: KEY=VALUE is expected")
        keys[key.strip()] = value.strip()
    if any(key.startswith("config.providers") for key in keys):
        from logfleet.cli.machine.config_providers import resolved  # few starts need it

        keys = resolved(keys)
    return broker_config(keys)


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        from uvloop import new_event_loop as factory
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def timer_of(config: BrokerConfig) -> DeadMansTimer:
    """Kills this process if it is suspended.

    With the embedded store no other broker could take over.
    """
    if config.logfleet_metadata_store == "sqlite":
        return NO_TIMER
    try:
        timer = KernelTimer()
    except Unavailable as error:
        _log().warning("not_killed_if_stopped", reason=str(error))
        return NO_TIMER
    _log().info("killed_if_stopped")
    return timer


async def serve(
    config: BrokerConfig,
    timer: DeadMansTimer = NO_TIMER,
    on_ready: Callable[[str], None] | None = None,
) -> int:
    """Run the broker until a signal or a failure; return the exit code.

    timer: see Broker. on_ready: gets one line for people once the broker serves.
    """
    if config.unknown:
        from logfleet.config.server_properties.names import sentences  # few starts need it

        for sentence in sentences(config.unknown):
            _log().warning("unknown_config", note=sentence)
    for key in config.without_effect:
        _log().warning("config_without_effect", key=key)
    loop = asyncio.get_running_loop()
    running = Broker(config, timer=timer)
    task = asyncio.current_task()
    assert task is not None
    started = False

    def on_signal() -> None:
        # Before it serves there is nothing to finish: cancel the start.
        if started:
            running.end()
        else:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        async with running:
            started = True
            if on_ready is not None:
                on_ready(ready_line(running))
            # Objects that exist now live as long as the broker: the collector need not scan them
            # again.
            gc.enable()
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            await running.until_ended()
    except StartError as error:
        _log().critical("start_failed", reason=str(error))
        return EXIT_FAILED
    except asyncio.CancelledError:
        _log().info("start_cancelled")
        return 0
    return 0 if running.failure is None else EXIT_FAILED


def ready_line(broker: Broker) -> str:
    """Where a broker serves, keeps its data and is observed, for the person who started it."""
    listeners = [
        f"{bracketed(each.host) or '*'}:{each.port}" for each in broker.opened.listeners.all
    ]
    directories = [_from_here(path) for path in broker.config.log_dirs]
    parts = [f"ready: {', '.join(listeners)}", f"data {', '.join(directories)}"]
    if broker.opened.observation.address is not None:
        parts.append(f"admin {broker.opened.observation.address}")
    return "  ".join([*parts, "Ctrl-C stops"])


def _from_here(path: str) -> str:
    """The path from the working directory, if it is below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else f"./{relative}"
