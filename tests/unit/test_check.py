"""`make check` finds the tests that a change concerns."""

from __future__ import annotations

from tests.cases import every
from tests.check import COMPILED, Module, concerned, nearest, needs, read_all

MODULES = {
    path: Module(path, source)
    for path, source in {
        "proxy/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .far import thing\n",
        "proxy/near.py": "from . import _fastparse",
        "proxy/far.py": "from .near import x\nfrom .sub import other",
        "proxy/sub/__init__.py": "",
        "proxy/sub/other.py": "",
        "tests/conftest.py": "",
        "tests/unit/conftest.py": "import toolwire.sub.other",
        "tests/unit/test_near.py": "from toolwire.near import x",
        "tests/unit/test_far.py": "from toolwire import far",
        "tests/chain/test_through.py": "from toolwire import thing",
        "tests/chain/test_named.py": "patch = 'toolwire.near.x'",
        "tests/chain/test_pages.py": "pages = root.rglob('*.md')\nchart = root / 'deploy'\nfile = 'docs/reference/faults.md'",
    }.items()
}


@every(
    ("changed", "tests"),
    [
        ("proxy/near.py", ["unit/test_near", "chain/test_named", "unit/test_far", "chain/test_through"]),
        ("proxy/far.py", ["unit/test_far", "chain/test_through"]),
        ("proxy/_fasthost.pxi", ["unit/test_near", "chain/test_named", "unit/test_far", "chain/test_through"]),
        ("tests/chain/test_named.py", ["chain/test_named"]),
        ("tests/unit/conftest.py", ["unit/test_far", "unit/test_near"]),
        ("proxy/sub/other.py", ["unit/test_far", "unit/test_near", "chain/test_through"]),
        ("docs/reference/faults.md", ["chain/test_pages"]),
        ("docs/how-to/new.md", ["chain/test_pages"]),
        ("deploy/helm/toolwire/values.yaml", ["chain/test_pages"]),
        ("Makefile", []),
    ],
)
def test_the_nearest_come_first(changed: str, tests: list[str]) -> None:
    assert nearest([changed], MODULES) == [f"tests/{test}.py" for test in tests]


def test_what_was_changed_itself_comes_before_all_else() -> None:
    assert nearest(["proxy/near.py", "tests/chain/test_pages.py"], MODULES)[0] == "tests/chain/test_pages.py"


def test_types_alone_make_no_need() -> None:
    assert needs(MODULES)["proxy/__init__.py"] == set()


def test_this_repository() -> None:
    modules = read_all(["proxy/scan", "tests/parse"])
    steps = concerned(["proxy/_fastparse.pyx"], modules)
    assert steps[COMPILED] == 0
    assert concerned(["proxy/scan/parts/json.py"], modules)[COMPILED] == 0
    assert steps["tests/parse/test_laws.py"] <= 3
