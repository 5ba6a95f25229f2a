"""The text of PDF files, read in a process of its own: what such a file holds may take any time and memory (R28.4).

The library is the extra `pdf`. The process imports nothing of the gateway.
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
    """Whether the library is there."""
    return find_spec("pypdf") is not None


async def pdf_text(data: bytes) -> str | None:
    """The text of a PDF file, page by page; None if it has none, cannot be read, or is beyond a limit."""
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
            said, _ = await process.communicate(data)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode("utf-8", "replace") if process.returncode == 0 and said.strip() else None


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
    except (ImportError, ValueError, OSError):  # the time is bounded in any case
        pass
    from io import BytesIO

    from pypdf import PdfReader

    said: list[str] = []
    left = MAX_CHARS
    pages = PdfReader(BytesIO(sys.stdin.buffer.read())).pages
    for number, page in enumerate(pages):
        if number >= MAX_PAGES or left <= 0:
            said.append(f"[{len(pages) - number} more pages omitted]")
            break
        text = page.extract_text().strip()[:left]
        left -= len(text)
        if text:
            said.append(text)
    sys.stdout.buffer.write("\n\n".join(said).encode("utf-8", "replace"))


if __name__ == "__main__":
    _main()
