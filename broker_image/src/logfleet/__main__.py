"""The composition root: the only place where everything meets."""

import sys


def main() -> None:
    """Run the command line; the exit code is the process's."""
    from logfleet.cli.main import cli

    cli(prog_name="logfleet")


if __name__ == "__main__":
    if not __debug__:
        sys.exit("logfleet: assertions guard the data; do not run with python -O")
    main()
