"""`python -m tests.lab`: what `scripts/lab` runs."""

import sys

from tests.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
