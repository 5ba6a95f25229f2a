"""The parts of the scanner (docs/adr/0065): what they may know, and the laws of those that both scanners use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import toolwire.scan
from tests.cases import every
from toolwire.scan.decoding import DeltaDecoder
from toolwire.scan.modes import WHOLE, WRONG
from toolwire.scan.parts.code import BracesReader, CodeReader
from toolwire.scan.parts.json import ObjectReader

FOLDER = Path(toolwire.scan.__file__).parent
ONE_TEXT = (
    *("parts.buffer", "parts.forms", "parts.quoting", "parts.json", "parts.code"),
    *("parts.sending", "parts.fields", "parts.block", "parts.ends"),
)
PARTS = (
    *("_pyoutput", *ONE_TEXT[:3], "_pyprose", "_pystring", *ONE_TEXT[3:6], "_pyhost", *ONE_TEXT[6:]),
    *("_pysse", "_pyparse", "_pyframe", "_pyguard", "_pychunk", "_pyoutline"),
)
"""Each may know those before it."""


def test_every_part_has_a_twin_of_the_same_name() -> None:
    compiled = {path.stem.removeprefix("_fast") for path in FOLDER.glob("_fast*.pxi")} | {"parse"}
    assert {path.stem.removeprefix("_py") for path in FOLDER.glob("_py*.py")} == compiled - {"bytes", "plan"}
    assert {path.stem for path in FOLDER.glob("_py*.py")} == {*PARTS} - {*ONE_TEXT}


def test_a_part_of_one_text_has_its_c_types_beside_it() -> None:
    texts = {f"parts.{path.stem}" for path in (FOLDER / "parts").glob("*.py")} - {"parts.__init__"}
    assert texts == {f"parts.{path.stem}" for path in (FOLDER / "fast").glob("*.pxd")} == {*ONE_TEXT}


@pytest.mark.parametrize("part", ONE_TEXT)
def test_a_part_of_one_text_needs_no_cython_to_run(part: str) -> None:
    nodes = list(ast.walk(ast.parse(source(part))))
    assert not [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert "cython" not in [node.module for node in nodes if isinstance(node, ast.ImportFrom)]


def source(part: str) -> str:
    return (FOLDER / f"{part.replace('.', '/')}.py").read_text("utf-8")


@every("part", PARTS)
def test_a_part_knows_only_those_before_it(part: str) -> None:
    folder = part.rpartition(".")[0]
    known = set()
    for node in ast.walk(ast.parse(source(part))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level:
            known.add(f"{folder}.{node.module}" if folder and node.level == 1 else node.module)
    assert known & set(PARTS) <= set(PARTS[: PARTS.index(part)])


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    decoder = DeltaDecoder()
    assert (decoder.decode("a\ud83d"), decoder.half) == ("a", True)
    assert (decoder.decode("\ude00b"), decoder.half) == ("😀b", False)
    assert decoder.decode("\ud83d") == ""
    assert decoder.decode(b"c") == "\N{REPLACEMENT CHARACTER}c"
    assert decoder.finish() == ""


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (ObjectReader(), b'{"a\\\\": ["}\\"", {"b": -1.5e3}, [], true,], "c": {"d": null}}'),
        (CodeReader(), b"[f(a='it's \\'x\\'', b={'k': [1, (2)]}), g.h()]"),
        (BracesReader(), b'{a:<|"|>}]<|<|"|>,b:[{c:1}]}'),
        (BracesReader(), b'{a:b, c <|"|>, d = <|"|>}<|"|>}'),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else "",
)
def test_a_nested_value_ends_at_its_last_byte_however_it_was_cut(
    reader: ObjectReader | CodeReader | BracesReader, text: bytes
) -> None:
    for cut in range(1, len(text)):
        match reader:
            case CodeReader():
                reader.begin(True)
            case BracesReader():
                reader.begin(b'<|"|>')
            case _:
                reader.begin()
        assert reader.read(text[:cut], 0, cut) == cut
        assert reader.mode not in (WHOLE, WRONG)
        assert reader.read(text + b"}", cut, len(text) + 1) == len(text)
        assert reader.mode == WHOLE
