"""The results of a tuning: a table, a configuration file with the route's options, and JSON (`report.schema.json`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from ..._version import __version__
from ...config import BackendConfig
from ...upstream.servers.presets import AUTO
from ..bench.report import table
from .gateway import QuestionSettings, without_password
from .scoring import Figures, share
from .space import TuningCandidate
from .tuner import Progress, common_cases

SCHEMA_VERSION: Final = 1
KEY_VARIABLE: Final = "MODEL_SERVER_KEY"
LOGIN_VARIABLE: Final = "MODEL_SERVER_LOGIN"
"""The variables for the model server's key, and for user and password of its address, in a written file. Secrets are
never written."""

COMMENTED: Final = 8
"""The number of candidates whose figures are in a written file."""

COLUMNS: Final = (
    "cases",
    "score",
    "called",
    "right tool",
    "fits",
    "right values",
    "false calls",
    "printed",
    "tokens",
    "seconds",
)


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """The tuned model and the settings. `command` is the command line."""

    backend: BackendConfig
    model: str
    ask: QuestionSettings
    command: Sequence[str]

    @property
    def server(self) -> str:
        """The model server's address, without a password."""
        return without_password(self.backend.url or "")


# --- tables -----------------------------------------------------------------------------------------------------------


def row(figures: Figures) -> list[str]:
    """Returns the cells of a row, for `COLUMNS`."""
    return [
        f"{figures.answered}" + (f" +{figures.faults}!" if figures.faults else ""),
        "" if figures.score is None else f"{100 * figures.score:.0f}",
        *(_percent(part, figures.wanted) for part in (figures.called, figures.right_tool, figures.fits, figures.right)),
        _percent(figures.false_calls, figures.unwanted),
        str(figures.printed or "0"),
        _mean(figures.output_tokens, figures.answered, 0),
        _mean(figures.seconds, figures.answered, 1),
    ]


def _percent(part: int, whole: int) -> str:
    value = share(part, whole)
    return "" if value is None else f"{100 * value:.0f} %"


def _mean(total: float, count: int, digits: int) -> str:
    value = share(total, count)
    return "" if value is None else f"{value:.{digits}f}"


def as_text(progress: Progress, about: ReportHeader, *, most: int | None = None) -> Iterator[str]:
    """Yields the results as aligned Markdown, best first; `most`: only this many, and the default."""
    by_number = {candidate.number: candidate for candidate in progress.candidates}
    measured = [number for number in progress.best if number in progress.results]
    shown = [number for place, number in enumerate(measured) if most is None or place < most or number == 0]
    yield (
        f"{about.model} at {about.server}: {progress.asked} answers in {progress.seconds:.0f} s, tool_choice {about.ask.choice},"
        f" {len(measured)} of {len(progress.candidates)} candidates, cases: {len(progress.cases)}"
    )
    yield ""
    rows = [[by_number[n].name, *row(progress.figures(n)), progress.out.get(n, "")] for n in shown]
    yield from table(["candidate", *COLUMNS, "out"], rows)
    faults = [fault for number in shown for fault in progress.figures(number).fault_texts]
    if faults:
        yield ""
        yield from (f"Fault of the model server: {fault}" for fault in dict.fromkeys(faults))
    yield ""
    yield from decision(progress)


def decision(progress: Progress) -> Iterator[str]:
    """Yields the conclusion in sentences."""
    winner = progress.winner
    if winner is None:
        yield "Nothing was measured."
        return
    default = progress.candidates[0]
    if winner is default:
        yield f"Best: {winner.name}, which is the default."
    else:
        cases = common_cases(progress, winner.number, default.number)
        ours, theirs = progress.figures(winner.number, cases), progress.figures(default.number, cases)
        compared = ""
        if ours.score is not None and theirs.score is not None:
            compared = f": score {100 * ours.score:.0f} where the default ({default.name}) has {100 * theirs.score:.0f}"
        yield f"Best: {winner.name}{compared} (cases that both answered: {len(cases)})."
    figures = progress.figures(winner.number)
    if not figures.right and figures.wanted:
        yield (
            "No expected call had the right values. Require calls (`tool_choice: required`) where you can, or use"
            " a larger model."
        )
    if progress.trouble:
        yield f"It ended early, because the model server stopped answering: {progress.trouble}"
    elif progress.stopped:
        yield "It was stopped early: the order is not final."
    elif progress.decided:
        yield "It ended early, because the winner was certain."


# --- the configuration ------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and keys in their order."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(progress: Progress, about: ReportHeader, winner: TuningCandidate) -> str:
    """Returns a configuration file with the winner's options, with the figures as a comment. Contains no key."""
    lines = [
        f"toolwire {__version__} tuned this for {about.model}.",
        shlex.join(about.command),
        "",
        *as_text(progress, about, most=COMMENTED),
    ]
    comment = "\n".join(f"# {line}".rstrip() for line in lines)
    backend: dict[str, Any] = {"url": _address(about.backend.url or "")}
    if about.backend.preset != AUTO:
        backend["preset"] = about.backend.preset
    if about.backend.api_key:
        backend["api_key"] = f"${{{KEY_VARIABLE}:-}}"
    route = {
        "model": "*",
        "upstream_model": _plain(about.model),
        "options": _plain(winner.overrides) or {"format": winner.options.format},
    }
    tree = {"backends": {"default": backend}, "routes": [route]}
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"{comment}\n{text}"


def _address(url: str) -> str:
    parts = urlsplit(url)
    _, at, host = parts.netloc.rpartition("@")
    return _plain_text(url) if not at else parts._replace(netloc=f"${{{LOGIN_VARIABLE}}}@{host}").geturl()


def _plain_text(text: str) -> str:
    return text.replace("${", "$${")


def _plain(value: Any) -> Any:
    """Returns a value with `${` escaped, which would be a variable in a configuration file."""
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(progress: Progress, about: ReportHeader) -> dict[str, Any]:
    """Returns all results."""
    by_number = {candidate.number: candidate for candidate in progress.candidates}
    winner = progress.winner
    return {
        "schema": SCHEMA_VERSION,
        "toolwire": __version__,
        "model": about.model,
        "backend": about.server,
        "preset": about.backend.preset,
        "tool_choice": about.ask.choice,
        "max_tokens": about.ask.max_tokens,
        "temperature": about.ask.temperature,
        "seed": about.ask.seed,
        "seconds": round(progress.seconds, 3),
        "stopped": progress.stopped,
        "trouble": progress.trouble or None,
        "decided": progress.decided,
        "cases": [{"id": case.id, "topic": case.topic, "turns": case.turns} for case in progress.cases],
        "best": None if winner is None else winner.name,
        "candidates": [
            {
                "name": by_number[number].name,
                "levels": dict(by_number[number].levels),
                "options": dict(by_number[number].overrides),
                "out": progress.out.get(number),
                **figures_as_json(progress.figures(number)),
                "answers": [
                    {
                        "case": case,
                        "fault": result.answer.fault,
                        "failed": result.answer.failed,
                        "calls": [{"name": c.name, "arguments": c.arguments} for c in result.answer.calls],
                        "text": result.answer.text,
                        "points": result.points,
                        "right": result.marks is not None and result.marks.right,
                        "seconds": round(result.answer.seconds, 3),
                    }
                    for case, result in progress.results[number].items()
                ],
            }
            for number in progress.best
            if number in progress.results
        ],
    }


def figures_as_json(figures: Figures) -> dict[str, Any]:
    """Returns counts, and means of the other figures."""
    return {
        "asked": figures.asked,
        "faults": figures.faults,
        "failed": figures.failed,
        "score": figures.score,
        "wanted": figures.wanted,
        "called": figures.called,
        "right_tool": figures.right_tool,
        "fits": figures.fits,
        "right_values": figures.right,
        "unwanted": figures.unwanted,
        "false_calls": figures.false_calls,
        "printed": figures.printed,
        "input_tokens": share(figures.input_tokens, figures.answered),
        "output_tokens": share(figures.output_tokens, figures.answered),
        "seconds": share(figures.seconds, figures.answered),
    }
