"""One reading of the kernel's socket tables serves all sockets, and is not repeated at once."""

import os

from fuelline.record.samplers.descriptors import Peers

HEAD = "sl local_address rem_address st queues timer retrnsmt uid timeout inode\n"
S = 1_000_000_000


def line(inode: int, port: int) -> str:
    return f"   0: 0100007F:1F90 0100007F:{port:04X} 01 0:0 00:0 0 0 0 {inode} 1\n"


class Tables:
    def __init__(self) -> None:
        self.inodes = [11, 12]
        self.readings = 0
        self.now_ns = 0

    def read(self, path: str) -> str | None:
        if not path.endswith("/tcp"):
            return None
        self.readings += 1
        return HEAD + "".join(line(inode, inode) for inode in self.inodes)

    def peers(self) -> Peers:
        return Peers(self.read, lambda: self.now_ns)


def test_one_reading_serves_all_sockets() -> None:
    tables = Tables()
    peers = tables.peers()
    assert peers.find(os.getpid(), "11") == "127.0.0.1:11"
    assert peers.find(os.getpid(), "12") == "127.0.0.1:12"
    assert tables.readings == 1


def test_a_new_socket_is_found_after_a_while_and_not_by_reading_at_once() -> None:
    tables = Tables()
    peers = tables.peers()
    peers.find(os.getpid(), "11")
    tables.inodes.append(13)
    assert peers.find(os.getpid(), "13") is None
    assert tables.readings == 1
    tables.now_ns += 60 * S
    assert peers.find(os.getpid(), "13") == "127.0.0.1:13"


def test_readings_in_vain_come_less_and_less_often() -> None:
    tables = Tables()
    peers = tables.peers()
    for _ in range(3600):
        peers.find(os.getpid(), "99")
        tables.now_ns += S
    assert tables.readings < 9
