"""Starts llama.cpp's own HTTP server, and watches its slots."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from inferd.workers.backends.choice import BackendChoice, OpenAIOptions
from inferd.workers.model_files import ModelFile

SERVER = Path(__file__).with_name("llama_server.py")


@dataclass
class Llama:
    url: str
    key_file: Path

    def choice(self, **options: Any) -> BackendChoice:
        given = {"base_url": f"{self.url}/v1", "model": "SmolLM2", "api_key_file": self.key_file}
        options = {"system_prompt": "You are a helpful assistant.", **given, **options}
        return BackendChoice(backend="openai", model="smollm2", openai=OpenAIOptions(**options))

    async def slots_in_use(self) -> int:
        headers = {"Authorization": f"Bearer {self.key_file.read_text()}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{self.url}/slots") as response,
        ):
            return sum(slot["is_processing"] for slot in await response.json())

    async def until_slots(self, count: int) -> None:
        async with asyncio.timeout(60):
            while await self.slots_in_use() != count:
                await asyncio.sleep(0.05)


@contextlib.contextmanager
def llama(model: ModelFile, folder: Path, what: str) -> Iterator[Llama]:
    key_file = folder / "key"
    key_file.write_text(secrets.token_hex(8))
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(model.path), key_file.read_text(), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield Llama(process.stdout.readline().strip(), key_file)
        finally:
            process.kill()
