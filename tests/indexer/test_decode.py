"""Our decoders accept what strict eth_abi accepts, with the same values, and nothing else."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from indexer import events as ev
from indexer.abi import UndecodableLog
from indexer.decode import _EVENTS, Decoder, topic_of
from indexer.rpc.types import RawLog
from indexer.types import Address, Contracts, Hash32
from inferd.protocol.artifacts import load

REQUESTS, RESULTS, REGISTRY, STAKES, DISPUTES = (Address(bytes([n]) * 20) for n in range(1, 6))
CONTRACTS = Contracts(1, 0, REQUESTS, RESULTS, REGISTRY, STAKES, DISPUTES)
HOMES = {
    "InferenceRequests": ("requests", REQUESTS),
    "InferenceResults": ("results", RESULTS),
    "WorkerRegistry": ("registry", REGISTRY),
    "StakeManager": ("stakes", STAKES),
    "Disputes": ("disputes", DISPUTES),
}
DECODER = Decoder(CONTRACTS)


def abi_events() -> list[tuple[str, dict[str, Any]]]:
    return [
        (contract, entry)
        for contract in HOMES
        for entry in load(contract).abi
        if entry["type"] == "event"
    ]


def signature(entry: dict[str, Any]) -> str:
    return f"{entry['name']}({','.join(field['type'] for field in entry['inputs'])})"


EVENTS = {entry["name"]: (HOMES[contract][1], entry) for contract, entry in abi_events()}
SIMPLE = sorted(set(EVENTS) - {"InferenceRequested"})


def log_of(name: str, topics: list[bytes], data: bytes, address: bytes | None = None) -> RawLog:
    home, entry = EVENTS[name]
    return RawLog(
        address=Address(address or home),
        topics=(topic_of(signature(entry)), *topics),
        data=data,
        block_number=1,
        block_hash=Hash32(bytes(32)),
        tx_hash=Hash32(bytes(32)),
        tx_index=0,
        log_index=0,
    )


def strict(kind: str) -> str:
    """A string is read as the bytes it is: whether it is UTF-8 matters to nobody here."""
    return "bytes" if kind == "string" else kind


def reference(name: str, topics: list[bytes], data: bytes) -> tuple[Any, ...] | None:
    """What eth_abi makes of it, addresses as bytes; None where it refuses."""
    _, entry = EVENTS[name]
    indexed = [strict(field["type"]) for field in entry["inputs"] if field["indexed"]]
    plain = [strict(field["type"]) for field in entry["inputs"] if not field["indexed"]]
    try:
        values = [
            decode([kind], topic)[0] for kind, topic in zip(indexed, topics, strict=True)
        ] + list(decode(plain, data))
    except (DecodingError, OverflowError):
        return None
    return tuple(raw(value) for value in values)


def raw(value: Any) -> Any:
    """Addresses as bytes."""
    if isinstance(value, tuple):
        return tuple(raw(inner) for inner in value)
    return bytes.fromhex(value[2:]) if isinstance(value, str) else value


def values_of(kind: str) -> st.SearchStrategy[Any]:
    if kind == "address":
        return st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())
    if kind == "bool":
        return st.booleans()
    if kind in {"bytes20", "bytes32"}:
        size = int(kind[5:])
        return st.binary(min_size=size, max_size=size)
    if kind.endswith("[]"):
        return st.lists(values_of(kind[:-2]), max_size=5)
    if kind == "bytes":
        return st.binary(max_size=100)
    assert kind.startswith("uint")
    return st.integers(0, 2 ** int(kind[4:]) - 1)


@st.composite
def encoded(draw: st.DrawFn, name: str) -> tuple[list[bytes], bytes]:
    _, entry = EVENTS[name]
    topics = [
        encode([field["type"]], [draw(values_of(field["type"]))])
        for field in entry["inputs"]
        if field["indexed"]
    ]
    plain = [strict(field["type"]) for field in entry["inputs"] if not field["indexed"]]
    return topics, encode(plain, [draw(values_of(kind)) for kind in plain])


@st.composite
def damaged(draw: st.DrawFn, name: str) -> tuple[list[bytes], bytes]:
    """A proper encoding with words replaced by edge values, cut or extended."""
    topics, data = draw(encoded(name))
    edges = st.one_of(
        st.sampled_from([0, 1, 2, 31, 32, 64, 96, 128, 160, 2**32, 2**40, 2**160, 2**256 - 1]),
        st.integers(0, 400),
    ).map(lambda number: number.to_bytes(32, "big"))
    words = [data[at : at + 32] for at in range(0, len(data), 32)]
    for _ in range(draw(st.integers(0, 3))):
        if words:
            words[draw(st.integers(0, len(words) - 1))] = draw(edges)
    if topics and draw(st.booleans()):
        topics[draw(st.integers(0, len(topics) - 1))] = draw(edges)
    data = b"".join(words)
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return topics, data + draw(st.binary(max_size=40))


STORED_IDS = {
    "FeeRaised",
    "CancelRequested",
    "InferenceFulfilled",
    "RequestRefunded",
    "CallbackDelivered",
    "CallbackFailed",
    "PaymentHeld",
    "PaymentReleased",
    "DisputeOpened",
    "DisputeRuled",
    "DisputeLapsed",
}


def beyond_the_tables(name: str, values: tuple[Any, ...]) -> bool:
    """Numbers the contracts can never reach, and that we refuse because no column holds them."""
    if name in STORED_IDS:
        return bool(values[0] >= 2**63)
    return name == "WorkerPaid" and bool(values[2] >= 2**63)


def agree(name: str, topics: list[bytes], data: bytes) -> None:
    expected = reference(name, topics, data)
    try:
        event = DECODER.decode(log_of(name, topics, data))
    except UndecodableLog:
        assert expected is None or beyond_the_tables(name, expected)
    else:
        assert astuple(event) == expected
        assert ev.kind_of(event) == name


@pytest.mark.parametrize("name", SIMPLE)
@given(data=st.data())
def test_decode__proper_encodings__equal_eth_abi(name: str, data: st.DataObject) -> None:
    agree(name, *data.draw(encoded(name)))


@pytest.mark.parametrize("name", SIMPLE)
@given(data=st.data())
def test_decode__damaged_encodings__refused_exactly_where_eth_abi_does(
    name: str, data: st.DataObject
) -> None:
    agree(name, *data.draw(damaged(name)))


def requested(record: int, limits: int, text: bytes = b"x") -> RawLog:
    topics = [encode(["uint256"], [5]), encode(["address"], ["0x" + "ab" * 20]), b"\6" * 32]
    return log_of(
        "InferenceRequested",
        topics,
        encode(["uint256", "uint256", "bytes"], [record, limits, text]),
    )


@given(
    fee_gwei=st.integers(0, 2**48 - 1),
    deadline_s=st.integers(0, 2**40 - 1),
    commitment=st.binary(min_size=20, max_size=20),
    delivery=st.integers(0, 2),
    quorum=st.integers(0, 15),
    batchable=st.booleans(),
    under_terms=st.booleans(),
    max_tokens=st.integers(0, 2**32 - 1),
    memory_mb=st.integers(0, 2**32 - 1),
    callback_gas_limit=st.integers(0, 2**32 - 1),
    input_kind=st.integers(0, 1),
    text=st.binary(max_size=200),
)
def test_request__any_fields__packed_as_the_interface_says(
    fee_gwei: int,
    deadline_s: int,
    commitment: bytes,
    delivery: int,
    quorum: int,
    batchable: bool,
    under_terms: bool,
    max_tokens: int,
    memory_mb: int,
    callback_gas_limit: int,
    input_kind: int,
    text: bytes,
) -> None:
    record = (
        fee_gwei
        | deadline_s << 48
        | int.from_bytes(commitment, "big") << 88
        | delivery << 248
        | quorum << 250
        | batchable << 254
        | under_terms << 255
    )
    limits = max_tokens | memory_mb << 32 | callback_gas_limit << 64 | input_kind << 96
    assert DECODER.decode(requested(record, limits, text)) == ev.InferenceRequested(
        request_id=5,
        requester=Address(b"\xab" * 20),
        model_id=Hash32(b"\6" * 32),
        commitment=commitment,
        fee_wei=fee_gwei * 10**9,  # type: ignore[arg-type]
        deadline_s=deadline_s,
        delivery=delivery,
        quorum=quorum,
        batchable=batchable,
        under_terms=under_terms,
        max_tokens=max_tokens,
        memory_mb=memory_mb,
        callback_gas_limit=callback_gas_limit,
        input_kind=input_kind,
        input=text,
    )


@given(damage=damaged("InferenceRequested"))
@example(damage=([b"\xff" * 32, bytes(32), bytes(32)], bytes(96)))
def test_request__damaged__refused_wherever_eth_abi_does(
    damage: tuple[list[bytes], bytes],
) -> None:
    expected = reference("InferenceRequested", *damage)
    try:
        event = DECODER.decode(log_of("InferenceRequested", *damage))
    except UndecodableLog:
        return
    assert expected is not None
    assert isinstance(event, ev.InferenceRequested)
    assert (event.request_id, event.requester, event.model_id, event.input) == (
        *expected[:3],
        expected[5],
    )


@pytest.mark.parametrize(("record", "limits"), [(3 << 248, 0), (0, 2 << 96), (0, 1 << 104)])
def test_request__bits_without_a_meaning__refused(record: int, limits: int) -> None:
    with pytest.raises(UndecodableLog):
        DECODER.decode(requested(record, limits))


def test_table__is_the_compiled_interface() -> None:
    ours = {(home, text, count) for home, text, count, _ in _EVENTS}
    compiled = {
        (
            HOMES[contract][0],
            signature(entry),
            1 + sum(field["indexed"] for field in entry["inputs"]),
        )
        for contract, entry in abi_events()
    }
    assert ours == compiled


def test_events__are_all_named_in_the_unions() -> None:
    assert {kind.__name__ for kind in get_args(ev.Event)} == set(EVENTS)
    assert all(
        issubclass(kind, msgspec.Struct) and kind.__struct_fields__ for kind in get_args(ev.Event)
    )


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_decode__event_of_another_contract__refused(name: str) -> None:
    home, _ = EVENTS[name]
    other = next(address for _, address in HOMES.values() if address != home)
    with pytest.raises(UndecodableLog, match="another contract"):
        DECODER.decode(log_of(name, [], b"", other))


@pytest.mark.parametrize("topics", [[], [bytes(32)] * 4])
def test_decode__wrong_number_of_topics__refused(topics: list[bytes]) -> None:
    with pytest.raises(UndecodableLog, match="topics"):
        DECODER.decode(log_of("Staked", topics, bytes(64)))


def test_decode__anonymous_log__refused() -> None:
    log = log_of("Staked", [], b"")
    bare = RawLog(log.address, (), b"", 1, log.block_hash, log.tx_hash, 0, 0)
    with pytest.raises(UndecodableLog, match="no event"):
        DECODER.decode(bare)


def test_offset__into_the_head__refused_as_by_eth_abi() -> None:
    head = [64, 128, 0, 0]  # The models' length would be the number of slots.
    data = b"".join(number.to_bytes(32, "big") for number in [*head, 0])
    topics = [bytes(32), bytes(32)]
    assert reference("WorkerRegistered", topics, data) is None
    with pytest.raises(UndecodableLog, match="offset"):
        DECODER.decode(log_of("WorkerRegistered", topics, data))
