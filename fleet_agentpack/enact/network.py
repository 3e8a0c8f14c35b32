"""Which hosts a tool may reach: names and ports that a person granted, and where they may lead."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fleet_agentpack.enact.permissions import ANYWHERE

USUAL_PORTS = (80, 443)  # of a host that was granted without a port
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL}){{0,20}}\.?\Z")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Prefixes of NAT64 and of the older mappings, with an IPv4 address at the end.
_TRANSLATED = [ipaddress.ip_network(each) for each in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
# The last two lead to what a cloud tells its machines, though they look public.
_LOCAL = [
    ipaddress.ip_network(each)
    for each in ("fec0::/10", "64:ff9b:1::/48", "192.0.0.0/24", "168.63.129.16/32")
]


class HostError(ValueError):
    """A text that names no host, or a host that must not be reached; the message says why."""


@dataclass(frozen=True)
class Host:
    """A host that was granted: a name, `*.name`, an address or a range of them, and its ports."""

    name: str
    port: int | None = None
    network: _Network | None = None  # of an address or a range

    @classmethod
    def parse(cls, text: str) -> Host:
        """Read `host`, `host:port`, `*.host`, an address or a range. Raises `HostError`."""
        bare, port = _split(text)
        try:
            return cls(bare, port, ipaddress.ip_network(bare))
        except ValueError:
            pass
        if bare != ANYWHERE and not _NAME.match(bare):
            raise HostError(f"{text[:80]!r} is not a host such as api.example.com or 10.0.0.5:8080")
        return cls(bare.lower().rstrip("."), port)

    def covers(self, name: str, port: int) -> bool:
        """Whether a connection to this name and port was granted."""
        if self.name == ANYWHERE:
            return self.port in (None, port)
        if port not in ((self.port,) if self.port else USUAL_PORTS):
            return False
        if self.network:
            address = _address(name)
            return address is not None and address in self.network
        if self.name.startswith("*."):
            return name.endswith(self.name[1:])
        return name == self.name


@dataclass(frozen=True)
class Reach:
    """Everything that a tool may reach."""

    hosts: tuple[Host, ...]

    @classmethod
    def of(cls, granted: Iterable[str]) -> Reach:
        """What was granted. Raises `HostError`."""
        return cls(tuple(map(Host.parse, granted)))

    def addresses(self, name: str, port: int) -> Sequence[str]:
        """The addresses of a host that may be connected to. Raises `HostError`."""
        name = name.lower().rstrip(".")
        if not (_address(name) or _NAME.match(name)):  # a resolver may read it in another way
            raise HostError("it is no name of a host")
        if not any(each.covers(name, port) for each in self.hosts):
            raise HostError("it was not granted")
        found = _resolve(name, port)
        fine = [each for each in found if self._may_lead_to(each, port)]
        if not fine:
            why = "is on this machine or in a private network; that address has to be granted too"
            raise HostError(f"its address {found[0]} {why}")
        return [str(each) for each in fine]

    def _may_lead_to(self, address: _Address, port: int) -> bool:
        """Whether an address is public, or was itself granted: a name can be made to lead here."""
        plain = getattr(address, "ipv4_mapped", None) or address
        if all(map(_is_elsewhere, (plain, *_carried(plain)))):
            return True
        return any(each.network and each.covers(str(plain), port) for each in self.hosts)


def covered(wanted: Sequence[str], host: str) -> bool:
    """Whether a tool that asks for these hosts may be granted this one; an address always may."""
    given = Host.parse(host)
    if given.network or ANYWHERE in wanted or host in wanted:
        return True
    ports = (given.port,) if given.port else USUAL_PORTS
    asked = [Host.parse(each) for each in wanted]
    return all(any(each.covers(given.name, port) for each in asked) for port in ports)


def _split(text: str) -> tuple[str, int | None]:
    """A host and its port; an IPv6 address with one is in brackets."""
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?", text)
    if not match:
        return text, None
    port = int(match[2] or match[4] or 0)
    if port > 65535:
        raise HostError(f"{text[:80]!r} has no port from 1 to 65535")
    return match[1] or match[3], port or None


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_elsewhere(address: _Address) -> bool:
    """Whether an address is public, and not one of this machine's own."""
    is_local = not address.is_global or address.is_multicast or any(address in n for n in _LOCAL)
    return not is_local and not _is_our_own(address)


def _carried(address: _Address) -> Iterator[_Address]:
    """The IPv4 addresses to which an IPv6 address may be translated on its way."""
    if isinstance(address, ipaddress.IPv6Address):
        relayed = (address.sixtofour, *(address.teredo or ()))
        yield from (each for each in relayed if each)
        if any(address in each for each in _TRANSLATED):
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_our_own(address: _Address) -> bool:
    """Whether this machine has an address: only then can a socket be bound to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _resolve(name: str, port: int) -> list[_Address]:
    try:
        rows = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostError("its name cannot be resolved") from error
    texts = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows)
    return [ipaddress.ip_address(each) for each in texts]
