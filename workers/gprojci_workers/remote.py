"""Where commits may be fetched from: nowhere in a private network, unless the operator allows it."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from gprojci_workers.failure import AttemptFailed

PORTS = {"https": 443, "ssh": 22}
PRIVATE_PORTS = {**PORTS, "http": 80}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: an IPv4 address in the last 32 bits
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215
_ALLOW = "GPROJCI_PRIVATE_REPOSITORIES=true allows it (an internal GitHub Enterprise)"


def protocols(*, private: bool) -> str:
    """What git may speak, as GIT_ALLOW_PROTOCOL takes it."""
    return ":".join([*PRIVATE_PORTS, "file"] if private else PORTS)


def check(clone_url: str, *, private: bool) -> dict[str, str]:
    """Looks the host up and returns git's settings with which it connects to what was checked, and nowhere else.

    `http.curloptResolve` needs git 2.37; an older one looks the name up again. ssh always does.

    Raises:
        AttemptFailed: `checkout_error`: it is not an address to fetch from, or its host is not found.
    """
    settings = {"http.followRedirects": "false"}
    try:
        parsed = urlsplit(clone_url)
        port = parsed.port
    except ValueError as error:
        raise AttemptFailed("checkout_error", f"{clone_url!r} is not an address: {error}") from error
    if private and parsed.scheme == "file":
        return settings
    ports = PRIVATE_PORTS if private else PORTS
    if parsed.scheme not in ports or not parsed.hostname or parsed.hostname.startswith("-"):
        allowed = " or ".join(f"{scheme}://" for scheme in ports)
        raise AttemptFailed(
            "checkout_error", f"{clone_url!r} is not fetched from: it must begin with {allowed}; {_ALLOW}"
        )
    port = port or ports[parsed.scheme]
    try:
        found = socket.getaddrinfo(parsed.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AttemptFailed("checkout_error", f"{parsed.hostname} is not found: {error.strerror}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    if not private:
        for address in addresses:
            if not _is_public(address):
                reason = f"{parsed.hostname} is {address}, in a private network, and nothing is fetched from there"
                raise AttemptFailed("checkout_error", f"{reason}; {_ALLOW}")
    pinned = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    return {**settings, "http.curloptResolve": f"{parsed.hostname}:{port}:{pinned}"}


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address in _LOCAL_NAT64:
            return False
        nat64 = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        address = nat64 or address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast
