"""Extracts the text of PDF files in a subprocess, because a hostile file may need unbounded time and memory (R28.4).

The PDF library is the optional extra `pdf`. The subprocess imports nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from typing import Final

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_PAGES: Final = 200
MAX_CHARS: Final = 400_000
SECONDS: Final = 20.0
MEMORY_BYTES: Final = 1024 * 1024 * 1024


def can_read() -> bool:
    """True if the PDF library is installed."""
    return find_spec("pypdf") is not None


async def pdf_text(data: bytes) -> str | None:
    """Returns the text of a PDF file, page by page. Returns None if the file has no text, cannot be read, or exceeds a
    limit."""
    if len(data) > MAX_BYTES or not can_read():
        return None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", __file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate(data)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 and output.strip() else None


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
    except (ImportError, ValueError, OSError):  # the parent process bounds the time anyway
        pass
    from io import BytesIO

    from pypdf import PdfReader

    texts: list[str] = []
    left = MAX_CHARS
    pages = PdfReader(BytesIO(sys.stdin.buffer.read())).pages
    for number, page in enumerate(pages):
        if number >= MAX_PAGES or left <= 0:
            texts.append(f"[{len(pages) - number} more pages omitted]")
            break
        text = page.extract_text().strip()[:left]
        left -= len(text)
        if text:
            texts.append(text)
    sys.stdout.buffer.write("\n\n".join(texts).encode("utf-8", "replace"))


if __name__ == "__main__":
    _main()
