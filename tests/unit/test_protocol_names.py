"""Nothing outside of `proxy/protocols` knows a protocol by its name: what differs between them, they say themselves
(docs/adr/0024).

The names stand in one table, that of `toolwire.registry`.
"""

import ast
import re
from collections.abc import Iterator

from tests.cases import every
from tests.unit.test_imports import ROOT, everything
from toolwire.registry import CLIENT_PROTOCOLS, SERVER_PROTOCOLS

SHARED = re.compile(
    r"toolwire\.protocols(\.(base|sides|streams|turn_form|(proxied|stored)(\.\w+)?|shared(\.\w+)?|completions\.chat_templates))?"
)
"""Modules that are no single protocol's."""

TYPED = {
    "toolwire.openai_types",
    *(f"toolwire.openai_types.{name}" for name in ("calls", "conversation", "messages", "results", "streams", "tools")),
}
"""Helpers for programs that work with OpenAI's types, whatever the gateway serves."""

NAMES = {*CLIENT_PROTOCOLS, *SERVER_PROTOCOLS, "completions"}

QUOTED = re.compile(f"[\"']({'|'.join(map(re.escape, NAMES))})[\"']")

FIELDS = {"messages"}
"""Names that are a field's too: they mean the protocol where a `name` stands beside them."""


def own(module: str) -> bool:
    return module.startswith("toolwire.protocols.") and not SHARED.fullmatch(module)


def compared(file: str, source: str) -> Iterator[str]:
    """Comparisons with the name of one, and tables with one for a key."""
    if not QUOTED.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        inside: list[ast.AST | None] = []
        match node:
            case ast.Compare():
                inside = [node.left, *node.comparators]
            case ast.Dict():
                inside = [*node.keys]
            case ast.MatchValue():
                inside = [node.value]
            case ast.Call(func=ast.Attribute(attr="get" | "register"), args=[first, *_]):
                inside = [first]
        for found in (leaf for top in inside if top is not None for leaf in ast.walk(top)):
            if (
                isinstance(found, ast.Constant)
                and found.value in NAMES
                and not (found.value in FIELDS and _of_field(node))
            ):
                yield f"{file}:{found.lineno}: {found.value!r}"


def _of_field(node: ast.AST) -> bool:
    return not any(isinstance(leaf, ast.Attribute) and leaf.attr in ("name", "protocol") for leaf in ast.walk(node))


def sources() -> Iterator[tuple[str, str, str]]:
    for module in everything():
        if not module.startswith("toolwire.protocols") and module not in {*TYPED, "toolwire.registry"}:
            path = ROOT / (module.replace(".", "/") + ".py")
            path = path if path.exists() else ROOT / module.replace(".", "/") / "__init__.py"
            yield module, str(path.relative_to(ROOT)), path.read_text("utf-8")


def test_nobody_imports_what_is_one_protocols() -> None:
    modules = {module for module, _, _ in sources()}
    steps = [step for module in modules for step in everything()[module] if own(step.module)]
    assert [f"{step.place}: {step.importer} imports {step.module}" for step in steps] == []


def test_nobody_asks_for_a_protocols_name() -> None:
    assert [line for _, file, source in sources() for line in compared(file, source)] == []


@every(
    "source",
    [
        'x = exchange.protocol.name == "responses"',
        'x = exchange.protocol.name == "messages"',
        'x = name in ("chat", "completions")',
        'LONGEST = {"chat": 64}',
        'match kind:\n    case "openai_chat":\n        pass',
        'x = LONGEST.get("chat", 128)',
    ],
)
def test_a_name_is_noticed(source: str) -> None:
    assert list(compared("x.py", source))


def test_a_field_of_that_name_is_none() -> None:
    assert not list(compared("x.py", 'x = "messages" in body or body.get("messages")'))
