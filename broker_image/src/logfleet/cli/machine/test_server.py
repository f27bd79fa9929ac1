"""`logfleet test-server`: real brokers for the tests of programs in any language."""

import os
import signal
import sys
from threading import Thread
from types import FrameType

import click

LOOPBACK = ("127.0.0.1", "localhost")


def _port(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """The port of "PORT" or "127.0.0.1:PORT"."""
    host, _, port = value.rpartition(":")
    if host and host not in LOOPBACK:
        raise click.BadParameter(f"{host} is not loopback: there is no login")
    if not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{port!r} is no port")
    return int(port)


@click.command("test-server")
@click.option(
    "--control",
    default="0",
    show_default=True,
    metavar="PORT",
    callback=_port,
    help="Port of the HTTP interface, on 127.0.0.1 only. 0 is any free one.",
)
@click.option(
    "--until-eof",
    is_flag=True,
    help="End with the program that started it: when standard input ends.",
)
def test_server(control: int, *, until_eof: bool) -> None:
    """Start and disturb real brokers for tests, by HTTP, until Ctrl-C.

    Its first line is the address. A test in any language starts brokers there, kills and pauses
    them, and lets requests fail; docs/how-to/testing.md has the requests. Brokers and their data
    are gone when it ends.

    \b
    Example:
      logfleet test-server --control 9700
      curl -s localhost:9700/clusters -d '{"topics": {"orders": 3}}'
      curl -s localhost:9700/clusters/1/faults -d '{"api": "Produce", "lose_answer": true}'
    """
    from logfleet.testing.control import ControlServer
    from logfleet.testing.prepared import close_shared, shared

    try:
        server = ControlServer(control)
    except OSError as error:
        raise click.ClickException(f"port {control} of 127.0.0.1: {error.strerror}") from error
    signal.signal(signal.SIGTERM, _interrupt)
    shared()  # it imports while the test prepares its first request
    if until_eof:
        Thread(target=_follow_stdin, daemon=True).start()
    click.echo(server.url)
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.clusters.close()
        close_shared()
        server.server_close()


def _follow_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
