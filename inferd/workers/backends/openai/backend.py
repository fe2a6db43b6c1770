"""A model behind a server that speaks OpenAI's API: what it is asked, and what came out.

Greedy sampling with a seed from the commitment, where the server takes these. Whether the same
request gives the same bytes again is up to the server: `inferd.workers.backends.check` finds out.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import msgspec

from indexer.errors import OperatorError
from inferd.workers.backends.base import prompt_text
from inferd.workers.backends.choice import OpenAIOptions
from inferd.workers.backends.embeddings import (
    ENCODING,
    MAX_TEXTS,
    encode_embeddings,
    most_bytes,
    texts_of,
    unit,
)
from inferd.workers.backends.manifest import hash_of_text, manifest_of
from inferd.workers.backends.openai.answer import (
    PATHS,
    Answer,
    ModelEntry,
    entry_of,
    models_of,
    names_of,
    text_request,
    vectors_of,
)
from inferd.workers.backends.openai.dialect import Dialect, simpler
from inferd.workers.backends.openai.errors import (
    CUT_OFF,
    model_missing,
    refusal_error,
    start_error,
    trouble,
    unusable,
)
from inferd.workers.backends.openai.http import FAILED, Http
from inferd.workers.backends.openai.refusal import Refused, error_of
from inferd.workers.backends.openai.servers import ServerFacts, extras, facts_of, questions
from inferd.workers.backends.openai.sse import BadStream
from inferd.workers.job import BadInput, Completion, Job, WorkerBusy, WorkerFailed

_PROBE = "Say hello."
_PROBE_TOKENS = 16
_UNKNOWN_CONTEXT_TOKENS = 262_144
_LONGEST_TOKEN = 256  # in bytes; the longest are runs of spaces
_MAX_LIST_BYTES = 8_388_608
_MAX_FACTS_BYTES = 4_194_304
_VECTOR_BYTES_PER_OUTPUT_BYTE = 4  # JSON with all digits of a double, and what is around it
_NO_LIST = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of the server."""

    dialect: Dialect = field(default_factory=Dialect)
    facts: ServerFacts = field(default_factory=ServerFacts)
    dimensions: int = 0
    """Of its vectors."""


class OpenAIBackend:
    """One model of one server."""

    def __init__(self, options: OpenAIOptions, *, name: str) -> None:
        """`name` is the model's on chain."""
        self._options = options
        self._name = name
        self._served = options.model or name
        self._url = options.base_url
        self._http: Http | None = None
        self._known = _Known()
        self._prior_ms = 4000.0
        self._rests_until = 0.0
        """Monotonic seconds; the server said until when it has no capacity."""
        self._learning = asyncio.Lock()
        self._doubtful = False
        """The server was away: what was learnt of it may not hold any more."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def prior_ms(self) -> float:
        return self._prior_ms

    @property
    def max_output_bytes(self) -> int:
        bound, dimensions = self._options.max_output_bytes, self._known.dimensions
        return min(bound, most_bytes(self._name, dimensions)) if dimensions else bound

    @property
    def loaded(self) -> bool:
        """Its server is known; whether that holds its model in memory is the server's affair."""
        return self._http is not None

    @property
    def load_ms(self) -> float:
        return 0.0

    @property
    def facts(self) -> ServerFacts:
        """What the server told when it was found."""
        return self._known.facts

    async def start(self) -> None:
        """Finds the server and its model, and learns by a small request what it takes.

        Raises ServerUnreachable, ServerBusy, ServerNotTrusted, ApiKeyMissing, ApiKeyRefused,
        ModelMissing, ServerUnusable.
        """
        if self._http is not None:
            return
        http = Http(self._options)
        try:
            async with asyncio.timeout(self._options.timeout_s):
                self._known = await self._learn(http)
        except BaseException as error:
            await http.close()
            if isinstance(error, Refused):
                refused = refusal_error(error.refusal, self._url, self._served)
                raise refused from None
            if isinstance(error, BadStream):
                raise unusable(self._url, str(error)) from None
            if isinstance(error, FAILED):
                raise start_error(error, self._url) from None
            raise
        self._http = http

    async def unload(self) -> None:
        """The model is the server's to unload."""

    async def run(self, job: Job) -> Completion:
        """Raises BadInput, WorkerFailed or WorkerBusy. Cancelled, it hangs up on the server."""
        if self._http is None:
            raise WorkerFailed("the server has not been found yet")
        if (rest_s := self._rests_until - time.monotonic()) > 0:
            raise WorkerBusy("its server asked to be left alone", retry_after_s=rest_s)
        context = self._known.facts.context_tokens or _UNKNOWN_CONTEXT_TOKENS
        texts = MAX_TEXTS if self._options.api == "embeddings" else 1
        text = prompt_text(job, texts * context * _LONGEST_TOKEN)
        left_s = min(self._options.timeout_s, max(0.0, job.deadline_s - time.time()))
        try:
            async with asyncio.timeout(left_s):
                await self._learn_again(self._http)
                if self._options.api == "embeddings":
                    return await self._embedded(self._http, text)
                return await self._told(self._http, job, text)
        except Refused as refused:
            self._fail(refused)
        except BadStream as error:
            raise WorkerFailed(f"its server's answer is of no use: {error}") from None
        except OperatorError as error:
            raise WorkerFailed(error.message) from None
        except FAILED as error:
            self._doubtful = self._doubtful or isinstance(error, CUT_OFF)
            raise WorkerFailed(f"its server failed: {trouble(error)}") from None

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _fail(self, refused: Refused) -> NoReturn:
        error = error_of(refused)
        if isinstance(error, WorkerBusy) and refused.retry_after_s is not None:
            self._rests_until = time.monotonic() + refused.retry_after_s
        raise error from None

    async def _told(self, http: Http, job: Job, text: str) -> Completion:
        options = self._options
        wanted = min(job.max_tokens or options.default_tokens, options.max_tokens)
        try:
            answer, sampling = await self._ask(http, self._known, text, job.seed, wanted)
        except Refused as refused:
            if not refused.refusal.too_long:
                raise
            room = await self._room(http, text, job.seed)
            wanted = min(wanted, room)
            answer, sampling = await self._ask(http, self._known, text, job.seed, wanted)
        return Completion(
            output=answer.output,
            media_type="text/plain; charset=utf-8",
            manifest=self._manifest(
                sampling=sampling,
                prompt_tokens=answer.prompt_tokens,
                completion_tokens=answer.tokens,
                finish_reason=answer.finish_reason or "",
                version=answer.fingerprint,
                tokens_counted_by="server" if answer.completion_tokens is not None else "worker",
                system_prompt_sha256=hash_of_text(options.system_prompt),
            ),
        )

    async def _room(self, http: Http, text: str, seed: int) -> int:
        """How many tokens of answer fit beside a prompt that was refused as too long with as many
        as were wanted. Raises BadInput where not even one does, WorkerFailed where it is not
        known."""
        try:
            one, _ = await self._ask(http, self._known, text, seed, 1)
        except Refused as refused:
            if refused.refusal.too_long:
                raise BadInput("the prompt has more tokens than the model reads") from None
            raise
        context = self._known.facts.context_tokens
        if one.prompt_tokens is None or context is None:
            raise WorkerFailed("prompt and answer together exceed its server's context")
        return max(1, context - one.prompt_tokens)

    async def _ask(
        self, http: Http, known: _Known, text: str, seed: int, max_tokens: int
    ) -> tuple[Answer, dict[str, Any]]:
        sampling = known.dialect.sampling(seed, max_tokens) | extras(known.facts)
        body = text_request(self._options, self._served, text, sampling, known.dialect)
        answer = await http.stream(
            self._url + PATHS[self._options.api],
            body,
            max_tokens=max_tokens,
            max_output_bytes=self._options.max_output_bytes,
        )
        return answer, sampling

    async def _embedded(self, http: Http, text: str) -> Completion:
        texts = texts_of(text)
        if "" in texts:
            raise BadInput(f"text {texts.index('')} is empty")
        dimensions = self._known.dimensions
        largest = most_bytes(self._name, dimensions, len(texts))
        if largest > self._options.max_output_bytes:
            raise WorkerFailed(f"the output would have up to {largest} bytes: max_output_bytes")
        try:
            body = await self._vectors(http, texts, dimensions)
        except Refused as refused:
            # A text that is too long alone is so for every worker; many together need not be.
            if refused.refusal.too_long and len(texts) == 1:
                raise BadInput("the text has more tokens than the model reads") from None
            raise
        # Off the loop: they may be millions of numbers.
        output, tokens = await asyncio.to_thread(self._encoded, body, len(texts), dimensions)
        return Completion(
            output=output,
            media_type="application/json",
            manifest=self._manifest(
                sampling={},
                prompt_tokens=tokens,
                completion_tokens=0,
                finish_reason="stop",
                encoding=ENCODING,
            ),
        )

    def _encoded(self, body: bytes, texts: int, dimensions: int) -> tuple[bytes, int | None]:
        answer = vectors_of(body)
        vectors = answer.in_order(texts)
        if len(vectors[0]) != dimensions:
            raise BadStream(f"vectors of {len(vectors[0])} dimensions, not {dimensions}")
        try:
            units = [unit(vector) for vector in vectors]
        except ValueError as error:
            raise BadStream(str(error)) from None
        return encode_embeddings(self._name, dimensions, units), answer.prompt_tokens

    async def _vectors(self, http: Http, texts: list[str], dimensions: int) -> bytes:
        most = most_bytes(self._name, dimensions, len(texts)) * _VECTOR_BYTES_PER_OUTPUT_BYTE
        body = {"model": self._served, "input": texts, "encoding_format": "float"}
        return await http.post(self._url + PATHS["embeddings"], body, most + _MAX_LIST_BYTES)

    def _manifest(self, *, version: str = "", **told: Any) -> dict[str, Any]:
        facts, options = self._known.facts, self._options
        return manifest_of(
            model=self._name,
            weights=_without_folders(self._served),
            quantisation=options.quantisation or facts.quantisation or None,
            backend=facts.software or "OpenAI's API",
            version=facts.version or version,
            api=options.api,
            **told,
        )

    async def _learn_again(self, http: Http) -> None:
        """Where the server was away: no manifest may tell of the one that was there before."""
        if self._doubtful:
            async with self._learning:
                if self._doubtful:
                    self._known = await self._learn(http)
                    self._doubtful = False

    async def _learn(self, http: Http) -> _Known:
        entry = await self._found(http)
        if self._options.api == "embeddings":
            began_s = time.perf_counter()
            (vector,) = vectors_of(await self._vectors(http, [_PROBE], 0)).in_order(1)
            if not vector:
                raise BadStream("vectors without dimensions")
            self._prior_ms = 1000 * (time.perf_counter() - began_s)
            known = _Known(dimensions=len(vector))
        else:
            known = _Known(await self._learn_dialect(http))
        # Asked last: Ollama has nothing to say of a model before it has loaded it.
        return replace(known, facts=facts_of(entry, await self._answers(http, entry)))

    async def _learn_dialect(self, http: Http) -> Dialect:
        dialect = Dialect()
        first: Refused | None = None
        while True:
            began_s = time.perf_counter()
            try:
                answer, _ = await self._ask(http, _Known(dialect), _PROBE, 0, _PROBE_TOKENS)
            except Refused as refused:
                first = first or refused
                way = simpler(dialect, refused.refusal)
                if way is None:
                    raise first from None
                dialect = way
                continue
            took_ms = 1000 * (time.perf_counter() - began_s)
            self._prior_ms = took_ms / max(1, answer.tokens) * self._options.default_tokens
            return dialect

    async def _found(self, http: Http) -> ModelEntry | None:
        """The model in the server's list; None where it has no list. Raises ModelMissing."""
        try:
            models = models_of(await http.get(f"{self._url}/models", _MAX_LIST_BYTES))
        except Refused as refused:
            if refused.refusal.status in _NO_LIST:
                return None
            raise
        entry = entry_of(models, self._served)
        if entry is None:
            raise model_missing(self._url, self._served, f"it has {names_of(models)}")
        return entry

    async def _answers(self, http: Http, entry: ModelEntry | None) -> dict[str, Any]:
        """What the server tells beside the API; some of it may be switched off there."""
        root = self._url.removesuffix("/v1")
        answers = {}
        for question in questions(entry) if entry is not None else ():
            url = root + question.path
            try:
                if question.body is None:
                    body = await http.get(url, _MAX_FACTS_BYTES)
                else:
                    body = await http.post(url, question.body, _MAX_FACTS_BYTES)
                answers[question.path] = msgspec.json.decode(body)
            except (Refused, BadStream, msgspec.DecodeError, RecursionError, *FAILED):
                continue
        return answers


def _without_folders(name: str) -> str:
    """llama.cpp's server calls a model by its path, which is nobody's business."""
    return name.rpartition("/")[2] if name.startswith(("/", "./", "~")) else name
