"""Which data file a process has mapped into its memory.

A thread blocked in a page fault shows no address, so the file is not known for sure. But data sets
that are read by faults (numpy.memmap, Arrow, token files) are by far the largest thing that such a
process maps: the file with most mapped bytes is taken. Libraries, which are mapped to be executed,
and memory without a file do not count; nor do small files, such as locales.
"""

from fuelline.record.samplers.procfs import find_text
from fuelline.record.samplers.tree import Process

_SMALL_BYTES = 1 << 20


def find_mapped_data(process: Process) -> str | None:
    """The path of the largest mapped data file; None if there is none or maps are refused."""
    sizes: dict[str, int] = {}
    programs = set()
    for line in (find_text("maps", process.dir_fd) or "").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/") or fields[5].startswith("/dev/"):
            continue
        start, _, end = fields[0].partition("-")
        path = fields[5]
        sizes[path] = sizes.get(path, 0) + int(end, 16) - int(start, 16)
        if "x" in fields[1]:
            programs.add(path)
    data = {path: size for path, size in sizes.items() if path not in programs}
    largest = max(data, key=lambda path: data[path], default=None)
    return largest if largest is not None and data[largest] >= _SMALL_BYTES else None
