"""Which proxy a URL is asked through, as HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for a URL; None for a direct connection, which this machine always gets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if is_loopback(host) or _is_exempt(host, port, _variable(environ, "NO_PROXY")):
        return None
    found = _variable(environ, f"{parts.scheme}_PROXY") or _variable(environ, "ALL_PROXY")
    if not found:
        return None
    return found if "://" in found else f"http://{found}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _variable(environ: Mapping[str, str], name: str) -> str:
    """A variable in lower or upper case; the lower case is the older custom and wins."""
    return (environ.get(name.lower()) or environ.get(name.upper()) or "").strip()


def _is_exempt(host: str, port: int | None, exempt: str) -> bool:
    return any(_covers(entry.strip().lower(), host, port) for entry in exempt.split(","))


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY names a host: `*`, a domain, an address or a network."""
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and _address(entry) is None:
        return int(number) == port and _covers(name, host, port)
    name, address = entry.strip("[]").removeprefix("*").removeprefix("."), _address(host)
    if address is not None and "/" in name:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
    return entry == "*" or (bool(name) and (host == name or host.endswith(f".{name}")))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
