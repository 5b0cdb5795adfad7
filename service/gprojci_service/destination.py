"""Which addresses others may give us: none of the service's own network, unless the operator allows it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: an IPv4 address in the last 32 bits
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")  # RFC 8215


class DestinationRefused(Exception):
    """An address that nothing is sent to; the message says why."""


@dataclass(frozen=True)
class Destination:
    """A URL whose host was resolved: connections go to `addresses`, and to no other that the name may get later."""

    url: httpx.URL
    addresses: tuple[str, ...]

    def at(self, address: str) -> httpx.URL:
        """The URL with an address in place of the name."""
        return self.url.copy_with(host=address)


def check_url(
    url: str, *, private: bool, schemes: tuple[str, ...] = ("https",), setting: str = "GPROJCI_PRIVATE_NOTIFICATIONS"
) -> httpx.URL:
    """The URL, as far as can be told without asking the network. `setting` is the variable that `private` comes from.

    Raises:
        DestinationRefused: it is not one that may be given.
    """
    try:
        parsed = httpx.URL(url)
        port = urlsplit(url).port
    except (httpx.InvalidURL, ValueError) as error:
        raise DestinationRefused(f"is not an address: {error}") from error
    allowed = (*schemes, "http") if private else schemes
    if parsed.scheme not in allowed or not parsed.host or port == 0:
        raise DestinationRefused(f"must be {' or '.join(f'{scheme}://HOST…' for scheme in allowed)}")
    if parsed.userinfo and parsed.scheme != "ssh":
        raise DestinationRefused("must not hold a user or password, for others can read it")
    try:
        literal = ipaddress.ip_address(parsed.host)
    except ValueError:
        return parsed
    _check_address(str(literal), private, setting)
    return parsed


def resolve(url: str, *, private: bool) -> Destination:
    """Looks the host up; every address that it has must be allowed.

    Raises:
        DestinationRefused: one of them is not.
        OSError: it has none.
    """
    parsed = check_url(url, private=private)
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    found = socket.getaddrinfo(parsed.host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        _check_address(address, private)
    return Destination(parsed, tuple(addresses))


def _check_address(text: str, private: bool, setting: str = "GPROJCI_PRIVATE_NOTIFICATIONS") -> None:
    address = ipaddress.ip_address(text.partition("%")[0])
    if private:
        return
    if isinstance(address, ipaddress.IPv6Address):
        if address in _LOCAL_NAT64:
            raise DestinationRefused(f"{text} is translated to an address of a private network")
        nat64 = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
        address = nat64 or address.ipv4_mapped or address.sixtofour or address
    if not address.is_global or address.is_multicast:
        raise DestinationRefused(f"{text} is an address of a private network; {setting}=true allows such")
