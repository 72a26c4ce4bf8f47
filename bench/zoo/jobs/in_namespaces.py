"""Starts one process a rank, each in a network namespace of its own, as on hosts of their own.

    python in_namespaces.py NAMESPACE[,NAMESPACE...] FIRST_ADDRESS INTERFACE script.py [arguments]

Ends when all ranks have; if one fails, the others are ended, as a launcher does.
"""

import os
import signal
import subprocess
import sys
import time

PORT = "29517"
Process = subprocess.Popen[bytes]


def start(namespace: str, rank: int, shared: dict[str, str], command: list[str]) -> Process:
    env = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    enter = ["ip", "netns", "exec", namespace, sys.executable]
    return subprocess.Popen([*enter, *command], env=env)


def wait(processes: list[Process]) -> int:
    """The first exit code that is not 0, after which nobody is left running."""
    try:
        while True:
            codes = [process.poll() for process in processes]
            failed = next((code for code in codes if code), None)
            if failed is not None or None not in codes:
                return failed or 0
            time.sleep(0.05)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def main() -> int:
    names, address, interface, *command = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    namespaces = names.split(",")
    shared = {
        "WORLD_SIZE": str(len(namespaces)),
        "MASTER_ADDR": address,
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": interface,
    }
    return wait([start(name, rank, shared, command) for rank, name in enumerate(namespaces)])


if __name__ == "__main__":
    sys.exit(main())
