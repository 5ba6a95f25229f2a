"""Texts of files in requests, for servers that take no files (R28.4). A conversation sends its files with every turn,
so the application caches the texts."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Final

from ...model import ModelRequest, OpaquePart, Part, ToolResult, replace
from ...protocols.shared.files import PDF, FileContent
from ...support.cache import BudgetedCache, CacheBudget, weight_of
from ...support.offload import offload
from ...support.pdf_text import pdf_text
from ...upstream.pool.concession_retries import find_concessions
from ...upstream.servers.adapt import capabilities_after
from ...upstream.servers.fit_files import as_text_or_note, changed_parts, file_as_text, files_in, is_sent
from .request_state import Exchange

READERS: Final = 2
"""Maximum number of files whose text is extracted at the same time."""
MOST_FILES: Final = 32
"""Files of one request whose text is extracted; further ones are replaced by notes."""


class FileTexts:
    """Extracts the texts of files in requests, and caches them."""

    def __init__(self, budget: CacheBudget) -> None:
        self._known: BudgetedCache[str] = budget.cache("file_texts")
        self._turns = asyncio.Semaphore(READERS)

    async def read(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Returns the request in which each file that the server of the route does not take is replaced by its text, or
        by a note. The same object if there is no such file."""
        found = list(files_in(request.messages))
        flattened = exchange.tools_by == "gateway"
        if not found and not (flattened and _has_other_media(request)):
            return request
        pool = exchange.route.pool
        takes = capabilities_after(
            pool.capabilities,
            [
                find_concessions(member.endpoint.lessons, exchange.owner, replace(request, model=name))
                for member in pool.every
                for name in (member.name_of(request.model, exchange.route.config.upstream_model),)
            ],
        )
        texts: dict[int, Part] = {}

        def tell(name: str, detail: str) -> None:
            exchange.record.tolerate(name, detail, exchange.id)

        for part, file, in_result in found:
            if (in_result and flattened) or not is_sent(part, in_result, takes, pool.protocol):
                text = file.as_text()
                if text is None and file.media_type == PDF and len(texts) < MOST_FILES:
                    text = await self._pdf(file)
                texts[id(part)] = file_as_text(file, text, tell)

        def changed(part: OpaquePart, in_result: bool) -> Part:
            known = texts.get(id(part))
            if known is not None:
                return known
            return as_text_or_note(part, tell) if flattened and in_result else part

        messages = changed_parts(request.messages, changed)
        return request if messages is request.messages else replace(request, messages=messages)

    async def _pdf(self, file: FileContent) -> str | None:
        data = await offload(True, file.bytes)
        if data is None:
            return None
        key = blake2b(data, digest_size=16).digest()
        text = self._known.get(key)
        if text is None:
            async with self._turns:
                text = await pdf_text(data) or ""
            self.keep(key, text)
        return text or None

    def keep(self, key: bytes, text: str) -> None:
        """Caches the text of a file; `key` is a hash of its bytes."""
        self._known.put(key, text, weight_of(text))


def _has_other_media(request: ModelRequest) -> bool:
    return any(
        isinstance(part, ToolResult) and any(isinstance(inner, OpaquePart) for inner in part.parts)
        for message in request.messages
        for part in message.parts
    )
