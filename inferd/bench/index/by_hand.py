"""What little it takes to copy logs, where nothing is checked and nothing derived."""

from __future__ import annotations

import msgspec

from indexer.rpc.endpoint import Endpoint
from inferd.bench.index.jobs import TIMEOUT_S, Job, Range, connection_of

_RAW_COLUMNS = (
    "block_hash",
    "log_index",
    "block_number",
    "tx_hash",
    "tx_index",
    "address",
    "topics",
    "data",
)


async def raw(job: Job) -> list[Range]:
    """Fetches, and throws the bodies away."""
    endpoint = Endpoint(job.rpc_url, timeout_s=TIMEOUT_S)
    for span in job.ranges:
        await endpoint.post(get_logs(job, span))
    await endpoint.close()
    return list(job.ranges)


class _WireLog(msgspec.Struct, rename="camel", gc=False):
    address: str
    topics: list[str]
    data: str
    block_number: str
    block_hash: str
    transaction_hash: str
    transaction_index: str
    log_index: str


class _WireAnswer(msgspec.Struct, gc=False):
    result: list[_WireLog]


async def raw_copy(job: Job) -> list[Range]:
    """Fetches, parses, and writes the raw columns; nothing is checked."""
    decoder = msgspec.json.Decoder(_WireAnswer)
    endpoint = Endpoint(job.rpc_url, timeout_s=TIMEOUT_S)
    async with connection_of(job) as connection:
        for span in job.ranges:
            logs = decoder.decode(await endpoint.post(get_logs(job, span))).result
            await connection.copy_records_to_table(
                "raw_log",
                columns=_RAW_COLUMNS,
                records=[
                    (
                        bytes.fromhex(log.block_hash[2:]),
                        int(log.log_index, 16),
                        int(log.block_number, 16),
                        bytes.fromhex(log.transaction_hash[2:]),
                        int(log.transaction_index, 16),
                        bytes.fromhex(log.address[2:]),
                        [bytes.fromhex(topic[2:]) for topic in log.topics],
                        bytes.fromhex(log.data[2:]),
                    )
                    for log in logs
                ],
            )
    await endpoint.close()
    return list(job.ranges)


def get_logs(job: Job, span: Range) -> bytes:
    """The body of a call for all logs of the deployment."""
    criteria = {
        "fromBlock": hex(span[0]),
        "toBlock": hex(span[1]),
        "address": ["0x" + address.hex() for address in job.contracts.addresses()],
    }
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [criteria]}
    )
