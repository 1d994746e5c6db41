"""The program //tests/chaos, which runs tests/chaos/program.py."""

import sys

from tests.chaos import program

if __name__ == "__main__":
    sys.exit(program.main())
