"""Private inputs are plain between here and the back end, and nowhere before or after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from indexer.types import Address
from inferd.protocol.private import (
    ANSWER_MEDIA_TYPE,
    AnswerContext,
    CannotOpen,
    Context,
    DecryptionKey,
    EncryptionKey,
    NotPrivate,
    PrivateAnswer,
    open_input,
    recipient_of,
    seal_answer,
)
from inferd.workers.job import BadInput, Completion, Job

_TOLD = ("model", "backend", "file_sha256", "quantisation", "weights", "encoding", "sampling")
"""What of a manifest stays: counts of tokens would tell the lengths that padding hides."""
_LENGTHS = ("max_tokens", "max_completion_tokens")


class Sealing:
    """Opens what is encrypted to one of the keys of this process, and closes what came of it."""

    def __init__(self, keys: Sequence[DecryptionKey], chain_id: int, requests: Address) -> None:
        """The newest key first; `requests` is the contract InferenceRequests."""
        self._keys = {key.public: key for key in keys}
        self._chain_id = chain_id
        self._requests = requests

    @property
    def keys(self) -> tuple[EncryptionKey, ...]:
        """The public ones, the newest first."""
        return tuple(self._keys)

    async def opened(self, job: Job) -> tuple[Job, EncryptionKey]:
        """The job with its plain input, and whom the answer is for. Raises BadInput, with one
        reason for all that can be wrong."""
        context = Context(self._chain_id, self._requests, job.requester, job.model_id)
        try:
            key = self._keys[recipient_of(job.input) or EncryptionKey(b"")]
            opened = await asyncio.to_thread(open_input, job.input, key, context)
        except (KeyError, NotPrivate, CannotOpen):
            raise BadInput(
                "it is encrypted to another key, or for another requester, model or deployment"
            ) from None
        return replace(job, input=opened.content), opened.reply_to

    async def closed(self, job: Job, reply_to: EncryptionKey, plain: Completion) -> Completion:
        """What may be signed and stored."""
        context = AnswerContext(self._chain_id, self._requests, job.request_id, job.commitment)
        answer = PrivateAnswer(plain.output, plain.media_type)
        output = await asyncio.to_thread(seal_answer, answer, reply_to, context)
        manifest = {name: plain.manifest[name] for name in _TOLD if name in plain.manifest}
        if "sampling" in manifest:
            # How much was asked for may be what the prompt has left of the model's context.
            manifest["sampling"] = {
                name: value for name, value in manifest["sampling"].items() if name not in _LENGTHS
            }
        return Completion(output, ANSWER_MEDIA_TYPE, {**manifest, "private": True})
