"""Corners of the header that names the gateways a request came through."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.cases import every
from toolwire.errors import BackendFault
from toolwire.upstream.servers.hops import HEADER, MOST, read_hops

OWN = "0" * 16
OTHERS = [f"{number:016x}" for number in range(1, MOST + 2)]


def through(*fields: str) -> str:
    return read_hops(CIMultiDictProxy(CIMultiDict([(HEADER, field) for field in fields])), OWN)


@every(
    ("fields", "told"),
    [
        # What has not the form goes no further.
        *(((field,), "") for field in ("", "x", OTHERS[0].upper() + "G", f"{OTHERS[0]};{OTHERS[1]}", OWN[1:])),
        ((), ""),
        # Others are told of in their order, and once.
        ((f"{OTHERS[1]}, {OTHERS[0]},{OTHERS[1]}",), f"{OTHERS[1]}, {OTHERS[0]}"),
        ((OTHERS[1], OTHERS[0]), f"{OTHERS[1]}, {OTHERS[0]}"),
        ((",".join(OTHERS[:MOST]),), ", ".join(OTHERS[:MOST])),
    ],
)
def test_who_is_told_of(fields: tuple[str, ...], told: str) -> None:
    assert through(*fields) == told


@every("fields", [(OWN,), (f"{OTHERS[0]}, {OWN}",), (f"{OWN},{OTHERS[0]}",), (OTHERS[0], OWN), OTHERS[: MOST + 1]])
def test_the_own_name_is_a_circle_and_so_are_too_many(fields: tuple[str, ...]) -> None:
    with pytest.raises(BackendFault) as caught:
        through(*fields)
    assert caught.value.code == "backend_loop"
