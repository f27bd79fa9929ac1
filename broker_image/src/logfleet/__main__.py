"""The composition root: the only place where everything meets."""

import sys


def main() -> int:
    """Run the command line; the exit code is the process's."""
    sys.stderr.write("logfleet: no command is built yet\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
