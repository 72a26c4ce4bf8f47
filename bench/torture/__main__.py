"""`python -m bench.torture`."""

import sys

from bench.torture import main

if __name__ == "__main__":
    measured = main(sys.argv[1:])
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
