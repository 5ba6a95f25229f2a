"""What is distributed: the configuration of the wheels and its workflow agree, the sdist is whole, a wheel from it is
that of the checkout, and the README has no link that leads nowhere on a registry's page (R27.2, docs/adr/0039)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.metadata import Metadata

import toolwire.selftest
from tests.cases import every
from tests.optional import GIT, program

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOW = (ROOT / ".github" / "workflows" / "wheels.yml").read_text("utf-8")
TAGGED = "startsWith(github.ref, 'refs/tags/v')"
PYTHONS = ("311", "312", "313", "314")
PROMISED = {
    ("linux", "x86_64"): ("manylinux_x86_64", "musllinux_x86_64"),
    ("linux", "aarch64"): ("manylinux_aarch64", "musllinux_aarch64"),
    ("macos", "x86_64"): ("macosx_x86_64",),
    ("macos", "arm64"): ("macosx_arm64",),
    ("windows", "AMD64"): ("win_amd64",),
}
LEFT_OUT = (".ci/", ".github/", ".gitignore", "toolwire", "proxy/middlewares")
"""Of what git tracks, what the sdist leaves out: how this repository is tested and published, and the links that give
the installed names without an installation."""
MADE = re.compile(r"(toolwire\.egg-info/.*|PKG-INFO|setup\.cfg)")
"""In the sdist, though git does not track it."""


def build(kind: str, tree: Path, out: Path) -> Path:
    """An `sdist` or a `wheel` of `tree`, without the extension, whose build has tests of its own (`wheels.py`)."""
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    environment = {**os.environ, "TOOLWIRE_NO_EXTENSIONS": "1"}
    environment.pop("TOOLWIRE_REQUIRE_EXTENSIONS", None)
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", program, str(out)], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout: this compares with what is tracked")
    listed = subprocess.run([program(GIT), "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def checkout(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is tracked, as it is now, with the leftovers of a build."""
    tree = tmp_path_factory.mktemp("checkout")
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for leftover in ("proxy/_fastparse.c", "proxy/scan/fast/json.cpython-311-x86_64-linux-gnu.so", "proxy/app.pyc"):
        (tree / leftover).write_bytes(b"left")
    return tree


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked."""
    out = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", checkout, out)) as archive:
        archive.extractall(out, filter="data")
    (tree,) = (path for path in out.iterdir() if path.is_dir())
    return tree


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", sdist, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Metadata:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Metadata.from_email(wheel.read(name), validate=True)


# --- wheels for everybody -------------------------------------------------------------------------------------------


@every("platform", sorted({platform for platform, _ in PROMISED}))
def test_cibuildwheel_builds_what_is_promised(platform: str) -> None:
    pytest.importorskip("cibuildwheel")
    tags = {arch: tags for (system, arch), tags in PROMISED.items() if system == platform}
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform]
    done = subprocess.run([*command, "--archs", ",".join(tags), str(ROOT)], capture_output=True, text=True, check=True)
    wanted = {f"cp{python}-{tag}" for each in tags.values() for tag in each for python in PYTHONS}
    assert set(done.stdout.split()) == wanted


def test_the_workflow_builds_what_is_promised() -> None:
    jobs = yaml.safe_load(WORKFLOW)["jobs"]
    entries = jobs["wheels"]["strategy"]["matrix"]["include"]
    assert {(entry["platform"], entry["arch"]) for entry in entries} == set(PROMISED)
    assert set(jobs["publish"]["needs"]) == {"sdist", "wheels", "sbom"}


def test_the_workflow_publishes_tags_only_and_without_a_secret() -> None:
    """R35.6: every file with provenance, and the packages with a bill of materials."""
    workflow = yaml.safe_load(WORKFLOW)
    assert "secrets." not in WORKFLOW
    assert set(re.findall(r"\w*password\S*|\w*TOKEN: .*", WORKFLOW)) == {
        "password-stdin",
        "GH_TOKEN: ${{ github.token }}",
    }
    assert workflow["permissions"] == {"contents": "read"}
    trusted = [name for name, job in workflow["jobs"].items() if "id-token" in job.get("permissions", {})]
    assert trusted == ["image", "publish"]
    assert workflow["jobs"]["publish"]["if"] == TAGGED
    made = " ".join(step.get("run", "") for step in workflow["jobs"]["sbom"]["steps"])
    assert "cyclonedx-py environment installed" in made
    steps = steps_of("publish")
    assert steps["actions/attest-build-provenance"]["with"] == {"subject-path": "dist/*"}
    assert steps["actions/attest-sbom"]["with"]["subject-path"] == "dist/*.whl"
    order = list(steps)
    assert order.index("actions/attest-sbom") < order.index("pypa/gh-action-pypi-publish")


def steps_of(job: str) -> dict[str, Any]:
    """The steps of a job by their action; that without one is `login`."""
    steps = yaml.safe_load(WORKFLOW)["jobs"][job]["steps"]
    return {step.get("uses", "login").partition("@")[0]: step for step in steps}


def test_the_workflow_builds_the_image_of_the_documents() -> None:
    """R35.6: with all optional packages, for both architectures, with provenance and a bill of materials. It is pushed
    for tags only."""
    steps = steps_of("image")
    built = steps["docker/build-push-action"]["with"]
    assert (ROOT / built["context"] / built["file"]).is_file()
    assert "build-args" not in built, "the Containerfile's own default, which is `all`"
    assert {f"linux/{arch}" for arch in ("amd64", "arm64")} == set(built["platforms"].split(","))
    assert (built["provenance"], built["sbom"]) == ("mode=max", True)
    assert built["push"] == f"${{{{ {TAGGED} }}}}"
    assert {steps[name]["if"] for name in ("login", "actions/attest-build-provenance")} == {TAGGED}


@pytest.mark.parametrize(
    ("tag", "names"),
    [("v1.2.3", ["1.2.3", "1.2"]), ("v1.2.0rc1", ["1.2.0rc1"]), ("v10.20.30", ["10.20.30", "10.20"])],
)
def test_the_image_has_the_name_that_the_chart_asks_for(tag: str, names: list[str]) -> None:
    """The chart's default is its `appVersion`. A candidate of a release takes no other name."""
    named = steps_of("image")["docker/metadata-action"]["with"]
    rules = [dict(part.partition("=")[::2] for part in rule.split(",")) for rule in named["tags"].split()]
    assert all((rule["type"], rule["group"]) == ("match", "1") for rule in rules)
    found = [re.search(rule["pattern"], tag) for rule in rules]
    assert [match[1] for match in found if match] == names
    assert named["flavor"] == "latest=false"


def test_the_extra_all_has_everything_that_the_documents_promise() -> None:
    """R35.3: whoever installs `toolwire[all]`, or runs the image, misses none; only the demo's model is apart."""
    extras = PROJECT["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages if "adr" not in page.parts)
    promised = set(re.findall(r"toolwire\[(\w+)\]|extras? `(\w+)`", text))
    names = {first or second for first, second in promised}
    section = text.partition("\n## Optional packages\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^- `(\w+)`: ", section, re.M))
    (everything,) = extras["all"]
    assert re.findall(r"\w+", everything)[0] == PROJECT["project"]["name"]
    contents = set(re.findall(r"\w+", everything)[1:])
    assert {"otel", "mcp", "redis", "tune"} <= listed
    assert listed == contents | {"all"}, "the list names them all"
    assert names - {"all", "demo"} <= contents
    assert contents <= set(extras)


def test_classifiers_name_each_python_that_wheels_are_for() -> None:
    names = {line.rpartition(" ")[2].replace(".", "") for line in PROJECT["project"]["classifiers"] if ":: 3." in line}
    assert names == set(PYTHONS)
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"cp{python}-*" for python in PYTHONS]


def test_the_self_test_passes_with_either_scanner_and_asks_for_the_compiled_one() -> None:
    assert "python -m toolwire.selftest" in PROJECT["tool"]["cibuildwheel"]["test-command"]
    command = [sys.executable, "-m", "toolwire.selftest"]
    environment = {**os.environ, "TOOLWIRE_NO_EXTENSIONS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "python scanner" in done.stdout


def test_the_self_test_notices_a_wrong_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolwire.selftest, "TEXT", toolwire.selftest.TEXT.replace("Oslo", "Bergen"))
    with pytest.raises(RuntimeError, match="Bergen"):
        toolwire.selftest.check()


# --- sdist and wheel ------------------------------------------------------------------------------------------------


def test_the_sdist_is_whole(tracked: list[str], sdist: Path) -> None:
    held = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    wanted = {name for name in tracked if not name.startswith(LEFT_OUT)}
    assert wanted - held == set()
    assert {name for name in held - wanted if not MADE.fullmatch(name)} == set()


def test_a_wheel_of_the_sdist_is_that_of_the_checkout(
    wheel: zipfile.ZipFile, checkout: Path, tmp_path: Path, tracked: list[str]
) -> None:
    """R35.3: one package and all of it."""
    other = zipfile.ZipFile(build("wheel", checkout, tmp_path))
    assert {i.filename: i.CRC for i in wheel.infolist()} == {i.filename: i.CRC for i in other.infolist()}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    ours = {
        f"toolwire/{name.removeprefix('proxy/')}" for name in tracked if name.startswith(("proxy/", "middlewares/"))
    }
    assert held == ours - {"toolwire/middlewares"}


# --- the page on a registry -----------------------------------------------------------------------------------------


def test_the_metadata_is_valid_and_leads_home(metadata: Metadata) -> None:
    assert set(metadata.project_urls or ()) == {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    assert metadata.description_content_type == "text/markdown; charset=UTF-8; variant=GFM"
    assert metadata.license_expression == "Apache-2.0"


def test_the_readme_on_a_registry_has_no_link_that_leads_nowhere(metadata: Metadata) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown")
    page = markdown.render(metadata.description or "")
    assert page is not None
    targets = re.findall(r'(?:href|src|srcset)="([^"]+)"', page)
    ours = re.compile(
        r"https://(?:github\.com/toolwire/toolwire/(?:blob|tree)|raw\.githubusercontent\.com/toolwire/toolwire)"
        rf"/v{re.escape(str(metadata.version))}/([^#]+)"
    )
    found = [match[1] for match in map(ours.match, targets) if match]
    assert len(found) > 10
    assert any("/docs/images/" in target and "raw." in target for target in targets)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert [path for path in found if not (ROOT / path).exists()] == []
    assert [t for t in targets if "/tree/" in t and not (ROOT / ours.match(t)[1]).is_dir()] == []  # type: ignore[index]


def test_code_in_the_readme_stays_as_it_is(metadata: Metadata) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```.*?^```$", readme, re.MULTILINE | re.DOTALL)
    assert blocks == re.findall(r"^```.*?^```$", metadata.description or "", re.MULTILINE | re.DOTALL)
