"""`python -m tilework`: the command line."""

import sys

from tilework.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
