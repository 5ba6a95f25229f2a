"""Opaque values that clients keep for the gateway (R28.3)."""

from __future__ import annotations

import threading
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from operator import is_
from pathlib import Path

import pytest

from tests.cases import every
from toolwire.known.past import Past
from toolwire.model import Message, Reasoning, Text
from toolwire.protocols.shared.opaque_reasoning import SealedContent, for_server, open_sealed_texts
from toolwire.support.seals import MARK, PAYLOAD_BYTES, BrokenSeal, Seals, is_sealed, sealed_in, shared_secret

SEALS = Seals(b"secret")
CONTEXT = ("key", "route", "")


def seal(payload: bytes) -> str:
    value = SEALS.seal(payload, *CONTEXT)
    assert value is not None
    return value


@every("payload", [b"", b"{}", "Hm ü🚀".encode(), b"a" * PAYLOAD_BYTES])
def test_what_is_sealed_is_opened(payload: bytes) -> None:
    value = seal(payload)
    assert is_sealed(value)
    assert SEALS.open(value, ("key", "route", "other"), CONTEXT) == (payload, CONTEXT)


def test_too_much_is_not_sealed() -> None:
    assert SEALS.seal(b"a" * (PAYLOAD_BYTES + 1), *CONTEXT) is None


@every("context", [("ke", "yroute", ""), ("key", "route", "x"), ("route", "key", ""), ("key", "route")])
def test_it_is_bound_to_its_context(context: tuple[str, ...]) -> None:
    with pytest.raises(BrokenSeal):
        SEALS.open(seal(b"Hm"), context)


def test_it_is_bound_to_the_secret() -> None:
    with pytest.raises(BrokenSeal):
        Seals(b"another").open(seal(b"Hm"), CONTEXT)


def test_no_byte_of_it_may_change() -> None:
    raw = urlsafe_b64decode(seal(b"Hm, hm."))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(BrokenSeal):
            SEALS.open(urlsafe_b64encode(changed).decode(), CONTEXT)
    for size in range(len(raw)):
        with pytest.raises(BrokenSeal):
            SEALS.open(urlsafe_b64encode(raw[:size]).decode(), CONTEXT)


@every("value", ["", "EqQB", "dG9vbHdpcmUC", "dG9vbHdpcmUCü", "dG9vbHdpcmUC====", "dG9vbHdpcmUC" + "A" * 2_000_000])
def test_anything_else_is_none(value: str) -> None:
    with pytest.raises(BrokenSeal):
        SEALS.open(value, CONTEXT)


@every("packed", [zlib.compress(b"a" * (PAYLOAD_BYTES + 1)), b"no zlib"])
def test_what_holds_too_much_is_not_unpacked(packed: bytes) -> None:
    """Also where somebody has the secret."""
    signature = SEALS._signature(packed, CONTEXT)
    with pytest.raises(BrokenSeal):
        SEALS.open(urlsafe_b64encode(MARK + signature + packed).decode(), CONTEXT)


def test_values_are_found_wherever_they_stand() -> None:
    value = seal(b"Hm")
    assert sealed_in({"messages": {"signature": value}, "x": [1, {"data": value}, "text"]}) == [value, value]


def test_workers_share_what_the_first_one_made(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(shared_secret(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["seal.key"]
    assert tmp_path.joinpath("seal.key").stat().st_mode & 0o777 == 0o600
    assert shared_secret(None) != shared_secret(None)


def test_a_replaced_worker_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shared_secret(tmp_path)
    monkeypatch.delattr("os.open")  # as on a full disk
    assert shared_secret(tmp_path) == made


def test_reasoning_of_earlier_turns_is_opened_once() -> None:
    """The messages are the same objects in the next turn, so that later stages know them; dropped texts count again."""
    opened_texts: list[str] = []

    def open_sealed(value: str) -> tuple[SealedContent, str] | None:
        opened_texts.append(value)
        return None if value == broken else (SealedContent("Hm", "messages", {"signature": value}), "server")

    broken = seal(b"broken")
    said = tuple(
        Message("assistant", (Reasoning("", {"messages": {"signature": value}}), Text("Yes.")))
        for value in (seal(b"a"), broken, seal(b"b"))
    )
    without = [open_sealed_texts(said[:turn], open_sealed) for turn in (2, 3)]
    opened_texts.clear()
    past = Past(0)
    first, dropped = open_sealed_texts(said[:2], open_sealed, past)
    fitted = for_server(first, "another server", past)
    past = Past(0, past)
    second, dropped_again = open_sealed_texts(said, open_sealed, past)
    assert [(first, dropped), (second, dropped_again)] == without
    assert dropped == dropped_again == 1
    assert len(opened_texts) == 3
    assert all(map(is_, first, second))
    again = for_server(second, "another server", past)
    assert again == for_server(second, "another server")
    assert all(map(is_, fitted, again))
