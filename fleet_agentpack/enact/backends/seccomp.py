"""The system calls that no tool needs, as a classic BPF program for the kernel's seccomp filter.

A refused call fails with EPERM; calls that libraries probe and can do without fail with ENOSYS.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from functools import cache

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Keys of the user, namespaces, mounts, other processes' memory, the kernel itself.
REFUSED: Mapping[str, tuple[int, int]] = {  # name: number on x86_64, on aarch64
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "fanotify_init": (300, 262),
    "quotactl_fd": (443, 443),
    "open_tree_attr": (467, 467),
    "process_madvise": (440, 440),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "clock_settime": (227, 112),
    "settimeofday": (164, 170),
}
# The arguments of the first are in memory, where a filter cannot look: glibc falls back to clone,
# and to poll. What the last make belongs to no process, so no limit of a process counts it.
MISSING: Mapping[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
}
_SOCKET, _SOCKETPAIR, _CLONE, _IOCTL = (41, 198), (53, 199), (56, 220), (16, 29)
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW… flag
_NETLINK, _ROUTE = 16, 0  # the one protocol of it with which programs look at their own network
_FAMILIES = (2, 10, _NETLINK)  # IPv4, IPv6: no sockets of the file system, no abstract ones
_STREAM, _TYPE_MASK = 1, 0xF  # a pair of datagram sockets could be connected elsewhere
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW = 0x7FFF0000
_EPERM, _ENOSYS = (0x00050000 | each for each in (errno.EPERM, errno.ENOSYS))
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16


@cache
def program(machine: str = "") -> bytes | None:
    """The filter for this machine; None for one whose system calls we do not know."""
    machine = machine or platform.machine()
    if machine not in AUDIT_ARCH:
        return None
    column = list(AUDIT_ARCH).index(machine)
    rules = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, AUDIT_ARCH[machine], 1, 0),
        _step(_RETURN, _ENOSYS),  # another architecture's numbers mean other calls
        _step(_LOAD, _NUMBER),
        *([_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _ENOSYS)] if column == 0 else []),
    ]
    for calls, answer in ((REFUSED, _EPERM), (MISSING, _ENOSYS)):
        for numbers in calls.values():
            rules += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, answer)]
    rules += _when(_CLONE[column], _argument(0), [_step(_ANY_BIT, _NEW_NAMESPACES, 0, 1)])
    for request in _TERMINAL_INPUT:
        rules += _when(_IOCTL[column], _argument(1), [_step(_EQUAL, request, 0, 1)])
    known = [_step(_EQUAL, each, len(_FAMILIES) - at, 0) for at, each in enumerate(_FAMILIES)]
    rules += _when(_SOCKET[column], _argument(0), known)
    netlink = [_step(_EQUAL, _NETLINK, 0, 3), *_argument(2), _step(_EQUAL, _ROUTE, 1, 0)]
    rules += _when(_SOCKET[column], _argument(0), netlink)
    masked = [_argument(1)[0], _step(_AND, _TYPE_MASK)]
    rules += _when(_SOCKETPAIR[column], masked, [_step(_EQUAL, _STREAM, 1, 0)])
    return b"".join([*rules, _step(_RETURN, _ALLOW)])


def _when(number: int, load: list[bytes], tests: list[bytes]) -> list[bytes]:
    """Refuse a call unless its tests jump over the refusal; the number is loaded again after."""
    body = [*load, *tests, _step(_RETURN, _EPERM), _step(_LOAD, _NUMBER)]
    return [_step(_EQUAL, number, 0, len(body)), *body]


def _argument(index: int) -> list[bytes]:
    return [_step(_LOAD, _ARGUMENTS + 8 * index)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
