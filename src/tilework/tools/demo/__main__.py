"""`python -m tilework.tools.demo`."""

import sys

from tilework.tools.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
