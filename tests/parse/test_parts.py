"""The parts of the scanner (docs/adr/0028): what they may know, and the laws of those that both scanners use."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import toolwire.scan
from tests.cases import every
from toolwire.scan._grammar import BlockSyntax
from toolwire.scan._plan import CODE, JSON, PRINTED
from toolwire.scan.closers import CLOSER, NOTHING_YET, OPENER, CloserSearch
from toolwire.scan.decoding import DeltaDecoder
from toolwire.scan.first_key import FirstKey
from toolwire.scan.modes import WHOLE, WRONG
from toolwire.scan.parts.code import BracesReader, CodeReader
from toolwire.scan.parts.json import ObjectReader
from toolwire.scan.parts.quoting import Quoting

FOLDER = Path(toolwire.scan.__file__).parent
ONE_TEXT = ("parts.quoting", "parts.json", "parts.code")
PARTS = (
    *("_pybuffer", "_pyoutput", *ONE_TEXT, "_pyprose", "_pyhost", "_pystring", "_pyfields"),
    *("_pyblock", "_pysse", "_pyparse", "_pyframe", "_pyguard", "_pychunk", "_pyoutline"),
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


def pieces(text: bytes, random: Random) -> list[bytes]:
    cuts = sorted({0, len(text), *(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))})
    return [text[a:b] for a, b in pairwise(cuts)]


@every("seed", range(300))
def test_a_closer_is_found_however_the_block_was_cut(seed: int) -> None:
    random = Random(seed)
    opener, closer = random.choice([(b"<a>", b"</a>"), (b"[[", b"]]"), (b"aa", b"ab")])
    text = b"".join(random.choice([opener, closer, opener[:1], closer[:2], b"a", b"x"]) for _ in range(8))
    counts = random.choice([None, 0, random.randrange(len(text))])
    search = CloserSearch()
    search.begin(opener, closer)
    at = 0
    for piece in pieces(text, random):
        used = search.read(piece, None if counts is None else counts - at)
        at += used
        if search.found != NOTHING_YET:
            break
    ends = [(end, kind) for end, kind in ends_of(text, opener, closer, counts)]
    closers = [end for end, kind in ends if kind == CLOSER]
    openers = [end for end, kind in ends if kind == OPENER]
    assert search.found in (NOTHING_YET, CLOSER, OPENER)
    if search.found == CLOSER:
        assert at == closers[0]
    elif search.found == OPENER:
        assert at in openers
        assert not any(end <= at for end in closers)
    else:
        assert not closers
        assert not openers


def ends_of(text: bytes, opener: bytes, closer: bytes, counts: int | None) -> list[tuple[int, int]]:
    found = [(at + len(closer), CLOSER) for at in range(len(text)) if text.startswith(closer, at)]
    if counts is not None:
        found += [(at + len(opener), OPENER) for at in range(counts, len(text)) if text.startswith(opener, at)]
    return sorted(found)


@every("seed", range(100))
def test_bytes_cut_inside_a_character_are_the_text_that_they_were(seed: int) -> None:
    random = Random(seed)
    raw = b"".join(random.choice([b"a", "ä€😀".encode(), b"\xff", b"\xe2\x82", b"\xf0"]) for _ in range(6))
    decoder = DeltaDecoder()
    text = "".join(decoder.decode(piece) for piece in pieces(raw, random))
    half, rest = decoder.half, decoder.finish()
    assert text + rest == raw.decode("utf-8", "replace")
    assert half == bool(rest)


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


@every("seed", range(100))
def test_what_is_quoted_does_not_depend_on_cuts(seed: int) -> None:
    random = Random(seed)
    text = b"".join(random.choice([b"`", b"```", b"\n", b'"', b" ", b"py", b"x" * 40, b"\n```\n"]) for _ in range(12))
    whole, cut = Quoting(), Quoting()
    whole.read(text, 0, len(text), True)
    margin = True
    for piece in pieces(text, random):
        cut.read(piece, 0, len(piece), margin)
        line = (b"" if margin else b"x") + piece
        margin = not line[line.rfind(b"\n") + 1 :].strip(b" \t")
    for quoting in (whole, cut):
        quoting.end_run(ord("x"))
    assert (whole.fence, whole.span, whole.string) == (cut.fence, cut.span, cut.string)


NAMED = BlockSyntax(opener="", closer="", anchor="answer", first_keys=("name", "tool"))
PRINTING = BlockSyntax(opener="", anchor="margin", first_keys=("name",), untaught=True)


@pytest.mark.parametrize(
    ("syntax", "text", "fits", "kind"),
    [
        (NAMED, '{"name"', True, JSON),
        (NAMED, ' { "tool"'.lstrip(), True, JSON),
        (NAMED, '[ {"name"', True, JSON),
        (NAMED, '{"names', False, None),
        (NAMED, "{'", False, None),
        (PRINTING, "{'name'", True, CODE),
        (PRINTING, "f(", True, CODE),
        (PRINTING, "await f(", True, CODE),
        (PRINTING, "[f(", True, CODE),
        (PRINTING, "g", False, None),
    ],
)
def test_a_first_key_says_what_it_is_with_its_last_byte(
    syntax: BlockSyntax, text: str, fits: bool, kind: int | None
) -> None:
    key = FirstKey(syntax, PRINTED if syntax.untaught else JSON, ("f",), None)
    *before, last = [key.take(byte) for byte in text.encode()]
    assert set(before) <= {None}
    assert last is fits
    assert kind is None or key.kind == kind
