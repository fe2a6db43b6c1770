"""Which IP addresses a name that a stranger gave us may lead to. Pure.

Whoever registers a worker, or asks a request with a URI, chooses where this process connects to.
So only addresses of the public internet are reached, and networks that the operator names. What
an address of IPv6 carries of IPv4 (mapped, NAT64, 6to4, Teredo) is judged in its place: it is where
the packets may end up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address
IpNetwork: TypeAlias = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = (
    # In networks that are private or link-local as well, but a wide `networks` must not open them.
    IPv4Address("169.254.169.254"),  # AWS, Google, Azure, OpenStack and others
    IPv4Address("169.254.170.2"),  # AWS, of containers
    IPv4Address("169.254.170.23"),  # the same, of EKS pods
    IPv6Address("fd00:ec2::254"),  # AWS
    IPv6Address("fd00:ec2::23"),  # the same, of EKS pods
    IPv6Address("fd20:ce::254"),  # Google
    IPv4Address("100.100.100.200"),  # Alibaba
    IPv4Address("192.0.0.192"),  # Oracle
    IPv4Address("168.63.129.16"),  # Azure's host, which looks public
)
"""Where clouds hand credentials to whoever asks from inside."""
_OF_METADATA = "a cloud's metadata service"


@dataclass(frozen=True, slots=True)
class Reach:
    """The addresses of the public internet, and those of `networks`."""

    networks: tuple[IpNetwork, ...] = ()

    @classmethod
    def of(cls, networks: Iterable[str]) -> Reach:
        """From texts as `10.0.0.0/8`. Raises ValueError."""
        return cls(tuple(ip_network(text) for text in networks))

    def refusal(self, address: str) -> str | None:
        """Why the address, as text, is not connected to; None where it is."""
        try:
            # An IPv6 address may name the interface that it is to be reached by.
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return "not an IP address"
        if found in _METADATA:
            return _OF_METADATA
        for one in tuple(_carried(found)) or (found,):
            if (reason := self._refusal(one)) is not None:
                return reason
        return None

    def _refusal(self, address: IpAddress) -> str | None:
        if address in _METADATA:
            return _OF_METADATA
        if address.is_unspecified or address.is_multicast:
            return "no address of one machine"
        if any(address in network for network in self.networks):
            return None
        if address.is_loopback:
            return "a loopback address"
        if address.is_link_local:
            return "a link-local address"
        # Python takes for global what was once meant for sites, or to carry IPv4.
        site_local = isinstance(address, IPv6Address) and address.is_site_local
        if not address.is_global or address.is_reserved or site_local:
            return "a private or reserved address"
        return None


PUBLIC = Reach()
OWN_MACHINE_AND_NETWORKS = Reach.of(
    (
        "127.0.0.0/8",
        "::1/128",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
    )
)
"""With loopback and private networks: for development chains, where no stranger registers."""


def _carried(address: IpAddress) -> Iterator[IpAddress]:
    """The IPv4 addresses inside an address of IPv6."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
