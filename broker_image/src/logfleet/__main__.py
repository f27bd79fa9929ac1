"""The composition root: the only place where everything meets."""

import sys

from logfleet import NO_ASSERTIONS


def main() -> None:
    """Run the command line; the exit code is the process's."""
    if NO_ASSERTIONS:
        sys.exit(NO_ASSERTIONS)
    try:
        from logfleet.cli.main import EXIT_INTERRUPTED, cli
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C before there is anybody to take it
    try:
        cli(prog_name="logfleet")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
