"""NFS per mount and operation, from /proc/self/mountstats.

Sample of the input, one block a mount, then one line an operation with operations, transmissions,
timeouts, bytes sent, bytes received, queue ms, round-trip ms, execution ms, errors:

    device server:/export mounted on /data with fstype nfs4 statvers=1.1
            READ: 1201 1201 0 249808 157447040 12 5120 5190 0
"""

from collections.abc import Iterator

OPERATIONS = frozenset({"READ", "GETATTR", "LOOKUP", "OPEN", "READDIR", "ACCESS", "WRITE"})


def parse_mountstats(content: bytes) -> Iterator[tuple[str, float]]:
    """Counters of NFS mounts: `nfs.{mount}.{OP}.ops`, `.received_bytes`, `.rtt_ms`, `.exe_ms`."""
    mount = ""
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split()
        if line.startswith("device "):
            mount = words[4] if len(words) > 7 and words[7].startswith("nfs") else ""
        elif mount and len(words) >= 9 and words[0].rstrip(":") in OPERATIONS:
            prefix = f"nfs.{mount}.{words[0].rstrip(':')}"
            yield f"{prefix}.ops", int(words[1])
            yield f"{prefix}.received_bytes", int(words[5])
            yield f"{prefix}.rtt_ms", int(words[7])
            yield f"{prefix}.exe_ms", int(words[8])
