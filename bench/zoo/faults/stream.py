"""`python -m bench.zoo.faults.stream`: copies within memory for two seconds of four, for ever."""

import time

ARRAY_BYTES = 64 << 20
TURN_S = 2.0


def main() -> None:
    """Much larger than a cache, so that every byte goes through memory."""
    source, target = bytearray(ARRAY_BYTES), bytearray(ARRAY_BYTES)
    view = memoryview(target)
    while True:
        until_s = time.monotonic() + TURN_S
        while time.monotonic() < until_s:
            view[:] = source
        time.sleep(TURN_S)


if __name__ == "__main__":
    main()
