"""A long run of one fuzz target: `python -m tests.fuzz.run scanner --seconds 600`; without a name it lists them.

Guided by the coverage of the Python code where `atheris` is installed (`pip install atheris`; the compiled scanner runs
beside its twin, so what is new to the one is new to the other); else by mutation of what is kept in the corpus folder.
An input that breaks a law is written next to the corpus as `crash-*`, and running
`python -m tests.fuzz.run scanner FILE` shows it again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSTRUMENTED = ("proxy", "middlewares")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?")
    parser.add_argument("file", nargs="?", type=Path, help="run this input once")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"))
    given = parser.parse_args()
    atheris = None if given.file is not None else _atheris()
    with atheris.instrument_imports(include=list(INSTRUMENTED)) if atheris is not None else contextlib.nullcontext():
        from tests.fuzz.targets import TARGETS
    if given.target is None:
        print("\n".join(f"{name:20} {' '.join((target.__doc__ or '').split())}" for name, target in TARGETS.items()))
        return 0
    if given.target not in TARGETS:
        parser.error(f"no such target: {given.target}")
    target = TARGETS[given.target]
    if given.file is not None:
        target(given.file.read_bytes())
        return 0
    corpus = given.corpus / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    if atheris is None:
        return _mutate(target, corpus, given.seconds, given.seed)
    options = [
        "-len_control=0",
        f"-max_total_time={given.seconds}",
        f"-seed={given.seed}",
        "-max_len=600",
        "-timeout=120",
    ]
    options += ["-print_final_stats=1", f"-artifact_prefix={given.corpus}/{given.target}-", str(corpus)]
    atheris.Setup([sys.argv[0], *options], target)
    atheris.Fuzz()
    return 0


def _atheris() -> Any:
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: mutation without coverage", file=sys.stderr)
        return None
    return atheris


def _mutate(target: Callable[[bytes], None], corpus: Path, seconds: int, seed: int) -> int:
    rng = random.Random(seed)
    kept = [path.read_bytes() for path in corpus.iterdir()] or [b""]
    end, runs = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutated(rng.choice(kept), rng)
        runs += 1
        try:
            target(data)
        except Exception:
            path = corpus.parent / f"crash-{target.__name__}-{hashlib.sha256(data).hexdigest()[:16]}"
            path.write_bytes(data)
            print(f"after {runs} runs: {path}", file=sys.stderr)
            raise
        if len(kept) < 2000 and rng.random() < 0.02:
            kept.append(data)
    print(f"{runs} runs, nothing found")
    return 0


def mutated(data: bytes, rng: random.Random) -> bytes:
    """`data` with bytes put in, changed, taken away, or altogether new ones."""
    if not data or rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 120))
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randint(0, len(changed))
        changed[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 4))
    return bytes(changed[:600])


if __name__ == "__main__":
    sys.exit(main())
