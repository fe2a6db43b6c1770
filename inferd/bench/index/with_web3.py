"""web3.py, and executemany."""

from __future__ import annotations

from typing import Any

from eth_utils.address import to_checksum_address
from web3 import AsyncHTTPProvider, AsyncWeb3

from inferd.bench.index.jobs import TIMEOUT_S, Job, Range, connection_of
from inferd.protocol.artifacts import load


async def web3(job: Job) -> list[Range]:
    """A contract's decoded events, as web3.py's documentation has it."""
    w3 = AsyncWeb3(AsyncHTTPProvider(job.rpc_url, request_kwargs={"timeout": TIMEOUT_S}))
    contract = w3.eth.contract(
        address=to_checksum_address(job.contracts.requests), abi=load("InferenceRequests").abi
    )
    async with connection_of(job) as connection:
        for first, last in job.ranges:
            events = await contract.events.InferenceRequested().get_logs(
                from_block=first, to_block=last
            )
            await connection.executemany(
                "INSERT INTO public.requested VALUES"
                " ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING",
                [
                    (
                        bytes(event["blockHash"]),
                        event["logIndex"],
                        event["blockNumber"],
                        bytes(event["transactionHash"]),
                        event["transactionIndex"],
                        bytes.fromhex(event["address"][2:]),
                        *_values(event["args"]),
                    )
                    for event in events
                ],
            )
    await w3.provider.disconnect()
    return list(job.ranges)


def _values(arguments: Any) -> tuple[Any, ...]:
    """Of an event in the order of the interface."""
    request_id, requester, model_id, record, limits, octets = arguments.values()
    return request_id, bytes.fromhex(requester[2:]), model_id, record, limits, octets


async def web3_raw(job: Job) -> list[Range]:
    """Logs with nothing decoded."""
    w3 = AsyncWeb3(AsyncHTTPProvider(job.rpc_url, request_kwargs={"timeout": TIMEOUT_S}))
    addresses = [to_checksum_address(address) for address in job.contracts.addresses()]
    async with connection_of(job) as connection:
        for first, last in job.ranges:
            logs = await w3.eth.get_logs(
                {"fromBlock": first, "toBlock": last, "address": addresses}
            )
            await connection.executemany(
                "INSERT INTO public.raw_log VALUES"
                " ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
                [
                    (
                        bytes(log["blockHash"]),
                        log["logIndex"],
                        log["blockNumber"],
                        bytes(log["transactionHash"]),
                        log["transactionIndex"],
                        bytes.fromhex(log["address"][2:]),
                        [bytes(topic) for topic in log["topics"]],
                        bytes(log["data"]),
                    )
                    for log in logs
                ],
            )
    await w3.provider.disconnect()
    return list(job.ranges)
