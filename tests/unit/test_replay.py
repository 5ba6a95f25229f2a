"""Recordings: how they are read and cut, and what `toolwire replay` shows of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import toolwire.extras.replay.steps
from tests.cases import every
from toolwire.cli import main
from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.extras.capture.recording import RecordingError, cut, cut_text, deltas, is_sse
from toolwire.extras.replay.steps import CUTS, replay, summary
from toolwire.stream_grammar import check

Run = Callable[..., Result]
GOLDEN = Path(__file__).parents[1] / "golden"
FRAME = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
WRITTEN = 'Hi.\n<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>'


def recording(*deltas: str, reason: str = "stop") -> bytes:
    """A backend's stream with these pieces of text."""
    bodies = [{**FRAME, "choices": [{"index": 0, "delta": {"content": d}, "finish_reason": None}]} for d in deltas]
    bodies.append({**FRAME, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return b"".join(b"data: %s\n\n" % json.dumps(body).encode() for body in bodies) + b"data: [DONE]\n\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `toolwire replay` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *args, **kwargs: CliRunner().invoke(main, ["replay", *args], **kwargs)


@pytest.mark.parametrize("source", [WRITTEN.encode(), recording(WRITTEN[:20], WRITTEN[20:])])
@pytest.mark.parametrize("chunks", ["recorded", "tokens", "bytes", "whole", "7"])
def test_the_same_is_found_however_it_is_cut(run: Run, tmp_path: Path, source: bytes, chunks: str) -> None:
    (tmp_path / "r").write_bytes(source)
    result = run("r", "--chunks", chunks)
    assert result.exit_code == 0, result.output
    assert "kind=tool_call, name='f'" in result.output
    assert """text='{"a":1}'""" in result.output
    assert result.output.splitlines()[-3:] == [
        'call f {"a":1}',
        "1 call",
        "same result when split as: recorded, whole, tokens, bytes, 3, 7",
    ]


def test_states_and_what_is_held_are_shown_and_standard_input_is_taken(run: Run) -> None:
    result = run("-", "--chunks", "bytes", input=b"a<tool_call>{")
    rows = [line.split()[1:3] for line in result.output.splitlines() if re.match(r" +\d+ ", line)]
    assert [state for state, _ in rows] == ["text"] * 11 + ["lead", "body", "done"]
    assert [int(held) for _, held in rows] == [0, *range(1, 13), 0]
    assert "0 calls" in result.output


def test_the_calls_of_a_golden_stream(run: Run) -> None:
    golden = GOLDEN / "chat-two-calls-usage.sse"
    *steps, last = map(json.loads, run(str(golden), "--json").output.splitlines())
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert "".join(step["in"] for step in steps[:-1]) == golden.read_text("utf-8")
    assert {frozenset(step) for step in steps} == {frozenset({"step", "in", "state", "held", "events"})}
    calls = [{"name": "read_file", "arguments": '{"path":"notes.txt"}'}, {"name": "list_files", "arguments": "{}"}]
    assert last == {"calls": calls, "out_of_order": None, "cut": list(CUTS), "different_when_cut": []}
    (finish,) = [event for step in steps for event in step["events"] if event["event"] == "finish"]
    assert finish["usage"]["input_tokens"] == 82


def test_bytes_that_are_no_text_can_be_shown(run: Run) -> None:
    first = json.loads(run("-", "--json", input=b"a\xffb").output.splitlines()[0])
    assert first["in"] == "a\\xffb"
    assert first["events"][-1]["text"] == "a\ufffdb"


def test_another_format(run: Run, tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"name":"f","arguments":{}}')
    assert "0 calls" in run("r").output
    assert "1 call\n" in run("r", "--format", "bare_json").output
    result = run("r", "--format", "bar_json")
    assert (result.exit_code, "did you mean 'bare_json'?" in result.output) == (1, True)


class Careless:
    """A scanner that breaks the law: it looks at each delta alone."""

    state = "text"
    held = ""

    def feed(self, data: bytes) -> list[Event]:
        call = [Open(1, BlockKind.TOOL_CALL, name="f", call_id="c"), Close(1)]
        return call if b"ab" in data else []  # type: ignore[return-value]

    def finish(self, truncated: bool = False) -> list[Event]:
        return []


def test_a_difference_between_chunkings_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolwire.extras.replay.steps, "open_scanner", lambda format: Careless())
    result = run("-", input=b"ab")
    assert result.exit_code == 1
    assert "DIFFERENT result when split as: bytes\n" in result.output
    as_json = run("-", "--json", input=b"ab")
    assert (as_json.exit_code, json.loads(as_json.output.splitlines()[-1])["different_when_cut"]) == (1, ["bytes"])


def test_a_replayed_stream_is_a_whole_stream() -> None:
    steps = replay(recording("Hi <tool", '_call>{"name":"f"}</tool_call> x'))
    events = [event for step in steps for event in step.events]
    check(events)
    kinds = [type(event) for event in events if not isinstance(event, Delta)]
    assert kinds == [Start, Open, Close, Open, Close, Open, Close, Finish]


def test_a_call_that_the_length_cut_off_is_none() -> None:
    whole = '<tool_call>{"name":"f","arguments":{}}'
    assert summary(recording(whole)).calls == [("f", "{}")]
    assert summary(recording(whole, reason="length")).calls == []


@every("source", [b"", b"a\nb", "é\xff".encode("latin-1"), recording("a", "b"), b"data: a\r\n\r\n"])
@every("chunks", ["recorded", "tokens", "bytes", "whole", 3])
def test_cutting_loses_nothing(source: bytes, chunks: Any) -> None:
    assert b"".join(cut(source, chunks)) == source


@every("chunks", ["recorded", "tokens", "bytes", "whole", 3])
def test_cutting_text_loses_nothing(chunks: Any) -> None:
    text = "naïve café 🎉\nand so on " * 20
    pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in cut_text(text, chunks)]
    assert b"".join(pieces).decode() == text


def test_pieces_like_tokens_depend_on_the_seed_alone() -> None:
    assert cut_text("abc" * 50, "tokens", 1) == cut_text("abc" * 50, "tokens", 1) != cut_text("abc" * 50, "tokens", 2)


def test_frames_are_cut_at_their_ends() -> None:
    assert cut(recording("a"), "recorded")[-1] == b"data: [DONE]\n\n"
    assert len(cut(recording("a", "b"), "recorded")) == 4
    assert is_sse(b": comment\n\n")
    assert not is_sse(b"Hello: world")


def test_the_texts_of_a_recording() -> None:
    assert deltas(recording("a", "bé", "c")) == ["a", "bé", "c"]
    assert deltas("a\nbé".encode()) == ["a\n", "bé"]
    assert deltas(cut(recording("a", "b"), "recorded")[0]) == ["a"], "a stream that broke off"


@every(
    ("source", "message"),
    [
        (b"", "is empty"),
        (b"a\xff", "not UTF-8: byte 1 is 0xff"),
        (b"data: [DONE]\n\n", "no text in Chat chunks"),
        (b"data: nonsense\n\n", "no text in Chat chunks, so there is nothing to find calls in: "),
        ((GOLDEN / "responses-all-kinds.sse").read_bytes(), "no text in Chat chunks"),
    ],
)
def test_recordings_without_text(source: bytes, message: str) -> None:
    with pytest.raises(RecordingError, match=re.escape(message)):
        deltas(source)
