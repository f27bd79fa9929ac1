"""`python -m e2e.lab`: see `e2e.lab.cli`."""

import sys

from e2e.lab.cli import main

sys.exit(main(sys.argv[1:]))
