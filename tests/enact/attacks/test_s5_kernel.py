"""S5: the user's keys, new namespaces and other dangerous parts of the kernel."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from fleet_agentpack.enact.backends import keyring, seccomp
from tests.enact.attacks.publisher import attack, publish
from tests.enact.attacks.test_s4_paths import RULE, script
from tests.enact.kit import make_service, needs_bwrap, use_directory

pytestmark = [
    needs_bwrap,
    pytest.mark.skipif(platform.machine() not in seccomp.AUDIT_ARCH, reason="unknown machine"),
]
CALL = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *given):
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, given))
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "done"
"""
USER_KEYRING, DESCRIBE = -4, 6
COLUMN = list(seccomp.AUDIT_ARCH).index(platform.machine()) if seccomp.program() else 0


def test_the_users_keyring_cannot_be_read(home: Path) -> None:
    number = seccomp.REFUSED["keyctl"][COLUMN]
    code = f"{CALL}\nprint(call({number}, {DESCRIBE}, {USER_KEYRING}, 0, 0, 0))"
    assert attack(home, code).output == "EPERM\n"


def test_no_namespace_gives_capabilities_back(home: Path) -> None:
    code = f"{CALL}\nprint('done' if libc.unshare(0x10000000) == 0 else 'refused')"
    assert attack(home, code).output == "refused\n"


def test_clone_makes_no_namespace_either(home: Path) -> None:
    number = seccomp._CLONE[COLUMN]
    code = f"{CALL}\nprint(call({number}, 0x10000000 | 17, 0, 0, 0, 0))"
    assert attack(home, code).output == "EPERM\n"


@pytest.mark.parametrize(
    ("calls", "answer"), [(seccomp.REFUSED, "EPERM"), (seccomp.MISSING, "ENOSYS")]
)
def test_every_call_in_the_table_is_refused(
    home: Path, calls: dict[str, tuple[int, int]], answer: str
) -> None:
    numbers = {name: each[COLUMN] for name, each in calls.items()}
    code = f"{CALL}\nprint(json.dumps({{n: call(i, 0, 0, 0, 0, 0) for n, i in {numbers}.items()}}))"
    assert attack(home, code).output == dict.fromkeys(calls, answer)


def test_honest_programs_still_start_threads_children_and_pairs_of_sockets(home: Path) -> None:
    code = """
import socket, subprocess, threading
threading.Thread(target=print, args=["thread"]).start()
one, other = socket.socketpair()
one.send(b"pair"); print(other.recv(9).decode(), flush=True)
subprocess.run(["echo", "child"], check=True)
"""
    assert attack(home, code).output == "thread\npair\nchild\n"


def test_a_run_has_a_session_keyring_of_its_own(home: Path) -> None:
    number = seccomp.REFUSED["keyctl"][COLUMN]
    code = f"{CALL}\nprint(libc.syscall({number}, 0, -3, 0))"  # the identity of its session keyring
    publish(home, code)
    use_directory(home, home / "registry", execution={"default": "local"})  # nothing filtered
    service = make_service(home)
    found = {service.run("eve/tool").output for _ in range(2)}
    assert len(found) == 2 and f"{keyring._keyctl(0, -3, 0)}\n" not in found


def test_nothing_that_was_opened_for_the_sandbox_is_left_open_in_it(home: Path) -> None:
    """A directory that is mounted by its open file could be left through that file."""
    (home / "work" / ".git").mkdir(parents=True)
    code = """
import json, os
found = {}
for process in ("self", "1"):
    links = (f"/proc/{process}/fd/{each}" for each in os.listdir(f"/proc/{process}/fd"))
    found[process] = [os.readlink(each) for each in links if os.path.isdir(each)]
print(json.dumps(found))
"""
    result = attack(home, code, {"place": str(home / "work")}, **script(RULE))
    assert result.output == {"self": [], "1": []}


def test_the_users_keys_are_not_listed(home: Path) -> None:
    assert attack(home, "print(open('/proc/keys').read())").output == "\n"


@pytest.mark.parametrize(
    ("family", "kind", "protocol"),
    [(16, 3, 9), (16, 3, 12), (40, 1, 0), (38, 5, 0), (1, 1, 0), (17, 3, 0)],
    ids=["audit", "netfilter", "vsock", "crypto", "unix", "packet"],
)
def test_only_sockets_of_its_own_network_can_be_made(
    home: Path, family: int, kind: int, protocol: int
) -> None:
    number = seccomp._SOCKET[COLUMN]
    code = f"{CALL}\nprint(call({number}, 16, 3, 0), call({number}, {family}, {kind}, {protocol}))"
    assert attack(home, code).output == "done EPERM\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no such calls")
def test_other_numbers_of_the_same_calls_are_no_way_around_the_filter(home: Path) -> None:
    """The calls of 32-bit programs, and of the x32 interface."""
    code = f"""{CALL}
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))  # getpid by int 0x80
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(place)() == -errno.ENOSYS, call(0x40000000 | 39))
"""
    assert attack(home, code).output == "True ENOSYS\n"


def test_what_the_kernel_tells_root_alone_is_not_told(home: Path) -> None:
    """A tool of root's is root to the files of /proc, without any capability."""
    told = ("kcore", "kpagecount", "kpageflags", "slabinfo", "timer_list", "vmallocinfo")
    code = f"""
for name in {told}:
    try:
        if open("/proc/" + name, "rb").read(1):
            print(name)
    except OSError:
        pass
"""
    assert attack(home, code).output == ""
