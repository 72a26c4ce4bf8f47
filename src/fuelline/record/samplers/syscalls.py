"""System call numbers to names and to what a thread blocked in them is doing.

Only calls that we classify are listed; any other number is a call in which a thread is blocked
"elsewhere". Numbers: arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl (the generic
table, which aarch64 uses) of Linux 6.12.
"""

import os
from dataclasses import dataclass
from enum import Enum, auto


class Shape(Enum):
    """Where a call's arguments say what it works on."""

    READ_FD = auto()  # argument 0 is the descriptor being read
    READ_FROM = auto()  # argument 1 is the descriptor being read (sendfile)
    WRITE_FD = auto()
    META_FD = auto()
    META_PATH = auto()  # argument 0 points to a path
    META_AT = auto()  # argument 0 is a directory descriptor, argument 1 points to a path
    SOCKET_FD = auto()
    POLL = auto()  # array of pollfd, count
    SELECT = auto()  # count, three bit sets
    EPOLL = auto()  # argument 0 is the epoll descriptor
    ASYNC_IO = auto()  # waiting for completions of reads that were submitted earlier
    WRITE_ANY = auto()  # sync and the like: no single file
    FILE_LOCK = auto()
    LOCK = auto()
    SLEEP = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One system call: its name and where its arguments point."""

    name: str
    shape: Shape


_SHAPES = {
    Shape.READ_FD: "read pread64 readv preadv preadv2 copy_file_range splice readahead fadvise64",
    Shape.READ_FROM: "sendfile",
    Shape.WRITE_FD: "write pwrite64 writev pwritev pwritev2 fsync fdatasync sync_file_range"
    " ftruncate fallocate syncfs",
    Shape.WRITE_ANY: "sync msync",
    Shape.META_FD: "fstat fstatfs getdents getdents64 lseek close fgetxattr flistxattr fchdir",
    Shape.META_PATH: "open stat lstat access readlink unlink mkdir rmdir rename creat truncate"
    " chmod chown statfs chdir getxattr lgetxattr listxattr utimes link symlink",
    Shape.META_AT: "openat newfstatat statx faccessat faccessat2 readlinkat unlinkat mkdirat"
    " renameat renameat2 openat2 utimensat linkat fchmodat name_to_handle_at",
    Shape.SOCKET_FD: "recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg connect accept accept4",
    Shape.POLL: "poll ppoll",
    Shape.SELECT: "select pselect6",
    Shape.EPOLL: "epoll_wait epoll_pwait epoll_pwait2",
    Shape.ASYNC_IO: "io_getevents io_pgetevents io_uring_enter",
    Shape.FILE_LOCK: "flock fcntl",  # the only fcntl in which a thread blocks is F_SETLKW
    Shape.LOCK: "futex futex_wait futex_waitv semop semtimedop",
    Shape.SLEEP: "nanosleep clock_nanosleep",
    Shape.OTHER: "wait4 waitid ioctl pause rt_sigtimedwait restart_syscall mmap munmap madvise"
    " mprotect brk clone clone3 execve exit exit_group",
}

_X86_64 = """
0 read 1 write 2 open 3 close 4 stat 5 fstat 6 lstat 7 poll 8 lseek 9 mmap 10 mprotect 11 munmap
12 brk 16 ioctl 17 pread64 18 pwrite64 19 readv 20 writev 21 access 23 select 26 msync 28 madvise
34 pause 35 nanosleep 40 sendfile 42 connect 43 accept 44 sendto 45 recvfrom 46 sendmsg 47 recvmsg
56 clone 59 execve 60 exit 61 wait4 65 semop 72 fcntl 73 flock 74 fsync 75 fdatasync 76 truncate
77 ftruncate 78 getdents 80 chdir 81 fchdir 82 rename 83 mkdir 84 rmdir 85 creat 86 link 87 unlink
88 symlink 89 readlink 90 chmod 92 chown 128 rt_sigtimedwait 137 statfs 138 fstatfs 162 sync
187 readahead 191 getxattr 192 lgetxattr 193 fgetxattr 194 listxattr 196 flistxattr 202 futex
208 io_getevents 217 getdents64 219 restart_syscall 220 semtimedop 221 fadvise64
230 clock_nanosleep 231 exit_group 232 epoll_wait 235 utimes 247 waitid 257 openat 258 mkdirat
262 newfstatat 263 unlinkat 264 renameat 265 linkat 267 readlinkat 268 fchmodat 269 faccessat
270 pselect6 271 ppoll 275 splice 277 sync_file_range 280 utimensat 281 epoll_pwait 285 fallocate
288 accept4 295 preadv 296 pwritev 299 recvmmsg 303 name_to_handle_at 306 syncfs 307 sendmmsg
316 renameat2 326 copy_file_range 327 preadv2 328 pwritev2 332 statx 333 io_pgetevents
426 io_uring_enter 435 clone3 437 openat2 439 faccessat2 441 epoll_pwait2 449 futex_waitv
455 futex_wait
"""

_AARCH64 = """
4 io_getevents 8 getxattr 9 lgetxattr 10 fgetxattr 11 listxattr 13 flistxattr 22 epoll_pwait
25 fcntl 29 ioctl 32 flock 34 mkdirat 35 unlinkat 37 linkat 38 renameat 43 statfs 44 fstatfs
45 truncate 46 ftruncate 47 fallocate 48 faccessat 49 chdir 50 fchdir 53 fchmodat 56 openat
57 close 61 getdents64 62 lseek 63 read 64 write 65 readv 66 writev 67 pread64 68 pwrite64
69 preadv 70 pwritev 71 sendfile 72 pselect6 73 ppoll 76 splice 78 readlinkat 79 newfstatat
80 fstat 81 sync 82 fsync 83 fdatasync 84 sync_file_range 88 utimensat 93 exit 94 exit_group
95 waitid 98 futex 101 nanosleep 115 clock_nanosleep 128 restart_syscall 137 rt_sigtimedwait
192 semtimedop 193 semop 202 accept 203 connect 206 sendto 207 recvfrom 211 sendmsg 212 recvmsg
213 readahead 214 brk 215 munmap 220 clone 221 execve 222 mmap 223 fadvise64 226 mprotect
227 msync 233 madvise 242 accept4 243 recvmmsg 260 wait4 264 name_to_handle_at 267 syncfs
269 sendmmsg 276 renameat2 285 copy_file_range 286 preadv2 287 pwritev2 291 statx
292 io_pgetevents 426 io_uring_enter 435 clone3 437 openat2 439 faccessat2 441 epoll_pwait2
449 futex_waitv 455 futex_wait
"""


def table_for(machine: str) -> dict[int, SystemCall]:
    """Number to call for `uname -m`; empty for an architecture that we have no numbers for."""
    numbers = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine, "").split()
    shapes = {name: shape for shape, names in _SHAPES.items() for name in names.split()}
    return {
        int(number): SystemCall(name, shapes[name])
        for number, name in zip(numbers[::2], numbers[1::2], strict=True)
    }


HERE = table_for(os.uname().machine)
