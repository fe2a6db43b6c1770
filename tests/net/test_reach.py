"""Which addresses a stranger may lead us to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.net.reach import OWN_MACHINE_AND_NETWORKS, PUBLIC, Reach

V4 = st.integers(0, 2**32 - 1).map(IPv4Address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "93.184.216.34"])
def test_the_public_internet_is_reached(address: str) -> None:
    assert PUBLIC.refusal(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
        "2002:7f00:1::1",
        "2002:0a00:0001::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo of 192.0.2.45
        "no address",
        "",
    ],
)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert PUBLIC.refusal(address) is not None


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "::ffff:a9fe:a9fe"],
)
def test_metadata_services_are_refused_whatever_is_allowed(address: str) -> None:
    wide = Reach.of(["0.0.0.0/0", "::/0"])
    assert wide.refusal(address) == "a cloud's metadata service"
    assert OWN_MACHINE_AND_NETWORKS.refusal(address) == "a cloud's metadata service"


def test_named_networks_are_reached_and_others_stay_refused() -> None:
    reach = Reach.of(["10.0.0.0/8", "fd12::/16"])
    assert reach.refusal("10.200.0.1") is None
    assert reach.refusal("::ffff:10.200.0.1") is None
    assert reach.refusal("fd12::1") is None
    assert reach.refusal("192.168.0.1") is not None
    assert reach.refusal("127.0.0.1") == "a loopback address"
    assert OWN_MACHINE_AND_NETWORKS.refusal("127.0.0.1") is None
    assert OWN_MACHINE_AND_NETWORKS.refusal("::1") is None
    assert OWN_MACHINE_AND_NETWORKS.refusal("169.254.7.7") == "a link-local address"


@given(V4)
def test_an_address_inside_another_is_judged_as_it_is_alone(inner: IPv4Address) -> None:
    alone = PUBLIC.refusal(str(inner))
    number = int(inner)
    for carrier in (
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address((0x0064FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ):
        assert PUBLIC.refusal(str(carrier)) == alone


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_what_is_reached_is_global(address: IPv6Address) -> None:
    if PUBLIC.refusal(str(address)) is None:
        assert not (address.is_private or address.is_loopback or address.is_multicast)
