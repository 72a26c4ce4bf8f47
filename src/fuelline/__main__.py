"""`python -m fuelline`."""

import sys

from fuelline.cli import main

if __name__ == "__main__":
    sys.exit(main())
