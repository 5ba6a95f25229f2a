"""`toolwire bench parse`: small real runs. Nothing here looks at how large a time is."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from array import array
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import toolwire.extras.bench.parse
from tests.cases import every
from tests.unit.test_replay import recording
from toolwire.cli import main
from toolwire.events import Delta, Event
from toolwire.extras.bench import corpus, libraries, timing
from toolwire.extras.bench.contestants import CONTESTANTS, Contestant, parse_result
from toolwire.extras.bench.corpus import CASES, TOOLS, CorpusCall
from toolwire.extras.bench.parse import Growth, MeasurePlan, measure
from toolwire.extras.bench.plot import svg
from toolwire.extras.bench.report import as_json, as_text
from toolwire.extras.capture.recording import cut_text
from toolwire.fastparse import IMPLEMENTATION
from toolwire.registry import registries

Run = Callable[..., Result]
FORMATS = registries().formats.names()
COMPARED = ["compiled", "python", "buffering", "rescanning", "jiter"]
SVG = "{http://www.w3.org/2000/svg}"


WRITTEN = 'Hi.\n<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call> é'


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `toolwire bench parse` in an empty folder; one repeat and no growth, unless the arguments say otherwise."""
    monkeypatch.chdir(tmp_path)
    few = ("--repeat", "1", "--growth", "0", "--budget", "60")
    return lambda *args, **kwargs: CliRunner().invoke(main, ["bench", "parse", *few, *args], **kwargs)


@pytest.fixture
def validate() -> Callable[[Any], None]:
    """Raises if a document does not fit the published schema."""
    schema = json.loads(resources.files("toolwire.extras.bench").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).validate


# --- the corpus -------------------------------------------------------------------------------------------------------


@every(("format", "chunks"), [*((f, "tokens") for f in FORMATS[::24]), ("hermes", "bytes"), ("hermes", 7)])
def test_the_scanner_finds_what_the_corpus_says(format: str, chunks: Any) -> None:
    cases = [name for name in CASES if name != "100 KB"]  # the same as 10 KB, and most of the time
    plan = MeasurePlan(
        formats=[format], chunks=chunks, contestants=[IMPLEMENTATION], cases=cases, repeat=1, growth=0, budget_s=60
    )
    report = measure(plan)
    assert [(g.case, e.status, e.note) for g in report.groups for e in g.entries] == [
        (group.case, "measured", "") for group in report.groups
    ]
    assert len(report.groups) + len(report.left_out) == len(cases)
    assert len(report.left_out) <= 2


@every("name", CASES)
def test_a_seed_settles_the_corpus(name: str) -> None:
    hermes = registries().formats.get("hermes")
    assert corpus.build(name, hermes, 1) == corpus.build(name, hermes, 1) != corpus.build(name, hermes, 2)


# --- times ------------------------------------------------------------------------------------------------------------


def test_percentiles_are_of_nearest_rank() -> None:
    values = list(range(1, 1001))
    assert [timing.percentile(values, p) for p in (50, 90, 99, 99.9, 100)] == [500, 900, 990, 999, 1000]
    assert timing.percentile([7], 50) == 7


def test_a_histogram_counts_every_time_once() -> None:
    times = [1, 10, 11, 5_000, 10**12]
    spread = timing.spread(times)
    assert sum(count for _, count in spread.histogram) == len(times)
    assert spread.histogram[0] == (10, 2)
    assert spread.histogram[-1] == (timing.BOUNDS[-1], 1), "what is longer counts in the last bucket"
    assert (spread.percentiles[0], spread.max) == (11, 10**12)


def test_the_best_of_each_position_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = iter([array("q", [5, 1, 7]), array("q", [4, 2, 9])])
    monkeypatch.setattr(timing, "latencies", lambda make, pieces, clock: (next(rows), 3))
    times = timing.Times(3)
    for _ in range(2):
        times.repeat(CONTESTANTS["buffering"].texts("sentinel", None), ["a", "b", "c"], 0)  # type: ignore[arg-type]
    assert (list(times.best), list(times.raw), times.finish, times.repeats) == ([4, 1, 7], [5, 1, 7, 4, 2, 9], 3, 2)


def test_a_run_ends_when_its_time_is_over() -> None:
    class Slow:
        def feed(self, data: Any) -> list[Event]:
            return []

        def finish(self) -> list[Event]:
            raise AssertionError("it was stopped before")

    assert timing.whole_run(Slow, ["a"] * 100, -1) is None
    assert timing.fed(Slow, ["a"] * 100, -1) == ([], 0)


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> Any:
    """A whole report of two formats."""
    formats, cases = ["sentinel", "bare_json"], ["calls", "mixed"]
    return measure(MeasurePlan(formats=formats, contestants=COMPARED, repeat=2, growth=1_000, budget_s=60, cases=cases))


def test_all_figures_are_in_the_json(report: Any, validate: Callable[[Any], None]) -> None:
    document = json.loads(json.dumps(as_json(report)))
    validate(document)
    texts = {(text["format"], text["case"]): text for text in document["texts"]}
    assert list(texts) == [("sentinel", "calls"), ("sentinel", "mixed"), ("bare_json", "calls")]
    assert document["left_out"] == ["bare_json: mixed: the format has no prose around its calls"]
    text = texts["sentinel", "calls"]
    by_name = {each["name"]: each for each in text["contestants"]}
    assert list(by_name) == COMPARED
    twin = by_name["python"]
    assert (twin["status"], text["calls"]) == ("measured", 40)
    assert sum(bucket["count"] for bucket in twin["best_ns"]["histogram"]) == text["deltas"]
    assert sum(bucket["count"] for bucket in twin["raw_ns"]["histogram"]) == text["deltas"] * twin["repeats"]
    best = [twin["best_ns"][name] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert best == sorted(best)
    assert twin["best_ns"]["max"] <= twin["raw_ns"]["max"]
    assert {each["status"] for each in texts["bare_json", "calls"]["contestants"]} >= {"measured", "unreadable"}
    assert {(row["kind"], row["format"]) for row in document["growth"]} == {
        (kind, format) for kind in ("prose", "call") for format in ("sentinel", "bare_json")
    }


def test_the_tables_say_where_it_was_measured(report: Any) -> None:
    lines = list(as_text(report))
    assert lines[0].startswith("toolwire ")
    assert IMPLEMENTATION in lines[0]
    start = next(n for n, line in enumerate(lines) if line.startswith("**sentinel: calls**"))
    table = lines[start + 2 : lines.index("", start + 2)]
    assert len({len(line) for line in table}) == 1
    assert "p50 |" in table[0]
    assert len(table) == 2 + len(COMPARED)
    assert "Left out: bare_json: mixed: the format has no prose around its calls." in lines
    assert any(line.startswith("- buffering: unreadable: ") for line in lines)


def test_the_picture_holds_one_series_for_each_contestant(report: Any) -> None:
    root = ET.fromstring(svg(report))
    panels = root.findall(f".//{SVG}g[@class='panel']")
    measured = [{e.contestant for e in group.entries if e.best} for group in report.groups]
    drawn = [{g.get("data-contestant") for g in panel.findall(f"{SVG}g[@class='series']")} for panel in panels]
    assert drawn[:2] == measured[:2]
    assert len(panels) == len(measured) + 2 * 2
    legend = {"".join(g.itertext()).strip() for g in root.findall(f".//{SVG}g[@class='legend']")}
    assert legend == set().union(*drawn)
    points = [pair.split(",") for line in root.iter(f"{SVG}polyline") for pair in (line.get("points") or "").split()]
    assert points
    assert all(0 <= float(x) <= 300 and 0 <= float(y) <= 230 for x, y in points)


def plan(**more: Any) -> MeasurePlan:
    """Of one text, once."""
    return MeasurePlan(formats=["sentinel"], cases=["calls"], repeat=1, growth=0, **more)


def test_who_is_too_slow_is_told_and_not_drawn() -> None:
    report = measure(plan(contestants=["python"], budget_s=-1))
    (entry,) = report.groups[0].entries
    assert entry.status == "too slow"
    assert re.fullmatch(r"stopped after -1 s and 0 of [\d,]+ deltas", entry.note)
    growth = Growth(format="sentinel", kind="call", contestant="python", sizes=((1_000, None),))
    assert "python" not in svg(dataclasses.replace(report, growth=(growth,)))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_all_three(run: Run, tmp_path: Path, validate: Callable[[Any], None]) -> None:
    result = run(
        "--case", "calls", "--format", "hermes", "--json", "r.json", "--plot", "r.svg", "--implementation", "python"
    )
    assert result.exit_code == 0, result.output
    assert "| python" in result.output
    assert "| buffering" not in result.output
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    validate(document)
    assert document["settings"]["formats"] == ["hermes"]
    assert ET.fromstring((tmp_path / "r.svg").read_text("utf-8")).tag == f"{SVG}svg"


@every(
    ("source", "chunks", "deltas"),
    [
        *((WRITTEN.encode(), chunks, deltas) for chunks, deltas in ((None, None), ("tokens", None), ("5", 14))),
        (recording(WRITTEN[:9], WRITTEN[9:30], WRITTEN[30:]), None, 3),
        *((recording(WRITTEN), chunks, deltas) for chunks, deltas in (("recorded", 1), ("bytes", 66), ("whole", 1))),
    ],
)
def test_a_recording(run: Run, source: bytes, chunks: str | None, deltas: int | None) -> None:
    Path("r").write_bytes(source)
    compared = ("--implementation", IMPLEMENTATION, "--implementation", "buffering")
    result = run(
        "--input", "r", *(["--chunks", chunks] if chunks else []), *compared, "--json", "-", "--growth", "1000"
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    first, *others = document["texts"]
    assert (first["case"], first["calls"]) == ("recording", 1)
    frames = source.startswith(b"data:") and chunks in (None, "recorded")
    assert [(text["case"], text["calls"]) for text in others] == [("recording, whole path", 1)] * frames
    assert deltas in (None, first["deltas"])
    for text in document["texts"]:
        assert {c["name"]: c["status"] for c in text["contestants"]}[IMPLEMENTATION] == "measured"
    assert {row["kind"] for row in document["growth"]} == (set() if chunks == "whole" else {"recording, repeated"})


TAGGED = "Well.\n<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>\nSo."


def test_a_recording_is_measured_in_its_own_format_and_rewritten_for_others(run: Run) -> None:
    Path("r").write_text(json.dumps({"object": "chat.completion", "choices": [{"message": {"content": TAGGED}}]}))
    only = ("--input", "r", "--json", "-", "--implementation", IMPLEMENTATION)
    (own,) = json.loads(run(*only).stdout)["texts"]
    assert (own["calls"], "qwen" in own["format"] or "step" in own["format"]) == (1, True), own
    formats = ("hermes", "mistral", "qwen3_coder", "bare_json")
    document = json.loads(run(*only, *(word for name in formats for word in ("--format", name))).stdout)
    assert {text["format"]: text["calls"] for text in document["texts"]} == dict.fromkeys(formats[:3], 1)
    assert any(line.startswith("bare_json: recording: ") for line in document["left_out"])


@every(
    ("args", "source", "status", "message"),
    [
        (["--input", "none"], b"", 2, "none"),
        (["--input", "-"], b"", 1, "the recording is empty"),
        (["--input", "-"], b"data: [DONE]\n\n", 1, "no text in Chat chunks"),
        (["--input", "-"], b"\xff", 1, "not UTF-8"),
        (["--format", "hermse"], b"", 1, "did you mean 'hermes'?"),
        (["--chunks", "recorded"], b"", 2, "--input FILE"),
        (["--chunks", "words"], b"", 2, "--chunks"),
        (["--case", "calls", "--input", "-"], b"a", 2, "--case"),
        (["--case", "novel"], b"", 2, "'novel' is not one of prose, calls"),
        (["--implementation", "magic"], b"", 2, "'magic' is not one of compiled, python"),
        (["--repeat", "0"], b"", 2, "--repeat"),
        (["--budget", "0"], b"", 2, "--budget"),
        (["--plot", "no/such/folder.svg"], b"", 2, "no/such/folder.svg"),
        (["--implementation", "buffering", "--format", "bare_json", "--case", "prose"], b"", 1, "unreadable"),
    ],
)
def test_wrong_use_is_2_and_what_cannot_be_measured_1(
    run: Run, args: list[str], source: bytes, status: int, message: str
) -> None:
    result = run(*args, input=source)
    assert result.exit_code == status, result.output
    assert message in result.output


# --- contestants that fail ----------------------------------------------------------------------------------------


class Deaf:
    """A parser that finds nothing."""

    def feed(self, data: Any) -> list[Event]:
        return []

    def finish(self) -> list[Event]:
        return []


class Broken(Deaf):
    """A parser that raises."""

    def finish(self) -> list[Event]:
        raise KeyError("arguments")


def missing(format: str, offer: Any) -> Any:
    raise ImportError("No module named 'deaf'", name="deaf")


@every(
    ("name", "texts", "status", "note"),
    [
        ("rescanning", lambda format, offer: Deaf, "different", "finds 0 of 40 calls"),
        ("python", lambda format, offer: Broken, "failed", "KeyError: 'arguments'"),
        ("rescanning", lambda format, offer: None, "unreadable", "does not read this format"),
        ("python", missing, "missing", "not installed: deaf"),
        ("rescanning", lambda format, offer: offer.changed, "failed", "AttributeError: 'tuple' object has no attribute"),
    ],
)  # fmt: skip
def test_who_cannot_do_it_is_not_timed(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, texts: Any, status: str, note: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(CONTESTANTS, name, Contestant(name, texts))  # type: ignore[arg-type]
        report = measure(plan(contestants=[name, "buffering"], budget_s=60))
        result = run("--case", "calls", "--implementation", name, "--implementation", "buffering")
    broken, other = sorted(report.groups[0].entries, key=lambda entry: entry.contestant == "buffering")
    assert (broken.status, broken.note.startswith(note), broken.best) == (status, True, None)
    assert other.status == "measured"
    assert result.exit_code == int(name == "python" and status == "failed"), result.output


def test_another_call_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    written, wanted = (CorpusCall("search", {"query": query}) for query in "xy")
    case = corpus.CorpusCase("calls", corpus.rendered(registries().formats.get("sentinel"), [written]), (wanted,))
    monkeypatch.setattr(toolwire.extras.bench.parse.corpus, "build", lambda *given: case)
    assert measure(plan(contestants=["python"])).groups[0].entries[0].note == "call 1 of 1 is different"


def test_other_visible_text_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: Any = CONTESTANTS["python"].texts

    class Chatty:
        """The scanner, which adds to the first text."""

        def __init__(self) -> None:
            self._scanner = texts("sentinel", TOOLS)()
            self.feed = self._scanner.feed

        def finish(self) -> list[Event]:
            return [*self._scanner.finish(), Delta(0, "and so on")]

    monkeypatch.setitem(CONTESTANTS, "buffering", Contestant("buffering", lambda format, offer: Chatty))
    mixed = dataclasses.replace(plan(contestants=["python", "buffering"], budget_s=60), cases=["mixed"])
    entries = measure(mixed).groups[0].entries
    assert [(entry.status, entry.note) for entry in entries] == [("measured", ""), ("measured", "visible text differs")]


# --- the simple parsers and the libraries -----------------------------------------------------------------------------


@every("name", [name for name in CONTESTANTS if name not in ("compiled", "python", "sglang")])
@every("format", ["sentinel", "hermes", "fenced_json"])
@every("chunks", ["tokens", "bytes", "whole", 3])
def test_simple_parsers_find_what_they_read(name: str, format: str, chunks: Any) -> None:
    """With the library itself: it is installed where tests run."""
    make = CONTESTANTS[name].texts(format, TOOLS)
    assert make is not None
    calls = [("get_weather", {"city": "Łódź", "days": 3}), ("search", {"query": 'a "b" \\ c\n', "limit": 2.5})]
    wanted = [CorpusCall(*call) for call in calls]
    text = f"Well <tool.\n{corpus.rendered(registries().formats.get(format), wanted)}\nand so on"
    pieces = cut_text(text, chunks)
    maker = make if isinstance(pieces[0], str) else toolwire.extras.bench.parse.for_bytes(CONTESTANTS[name], make)
    events, fed = timing.fed(maker, pieces, 60)
    assert fed == len(pieces)
    assert parse_result(events).calls == tuple(wanted)
    assert parse_result(events).text == "Well<tool.andsoon"


class Chunked:
    """Behaves like SGLang's `FunctionCallParser`: text, and pieces of calls by their number."""

    def __init__(self, tools: list[Any], name: str) -> None:
        assert (tools[0]["function"]["name"], name) == ("get_weather", "hermes")

    def parse_stream_chunk(self, delta: str) -> tuple[str, list[Any]]:
        """Two calls whose pieces come in turns."""
        items = {
            "a": [SimpleNamespace(tool_index=0, name="get_weather", parameters="")],
            "b": [SimpleNamespace(tool_index=0, name=None, parameters='{"city":')],
            "c": [SimpleNamespace(tool_index=1, name="search", parameters="{}")],
            "d": [SimpleNamespace(tool_index=0, name=None, parameters='"Oslo"}')],
        }
        return delta if delta not in items else "", items.get(delta, [])


def test_sglangs_pieces_become_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {
        "sglang.srt.function_call.function_call_parser": SimpleNamespace(FunctionCallParser=Chunked),
        "sglang.srt.entrypoints.openai.protocol": SimpleNamespace(Tool=SimpleNamespace(model_validate=dict)),
    }
    monkeypatch.setattr(libraries, "import_module", modules.__getitem__)
    make = CONTESTANTS["sglang"].texts("hermes", TOOLS)
    assert make is not None
    result = parse_result(timing.fed(make, ["Hi", "a", "b", "c", "d"], 60)[0])
    assert (result.text, result.calls) == (
        "Hi",
        (CorpusCall("get_weather", {"city": "Oslo"}), CorpusCall("search", {})),
    )
    assert CONTESTANTS["sglang"].texts("sentinel", TOOLS) is None
