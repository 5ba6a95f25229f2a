"""Runs the text of a tool module, and resolves its imports of other files in the folder.

Rules:

1. The text that runs is the one that was read (`sources`); no bytecode is written. Only files that were not read, such
   as compiled extensions and data, come from the folder itself.
2. `import helper` finds `helper.py` beside the module before installed packages, but never replaces a module of the
   standard library: a tool module called `calendar.py` must not become the `calendar` of other code. Relative imports
   work too; a module that is imported both ways exists twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Final

from .sources import FolderSnapshot, Source

PACKAGE: Final = "toolwire_tools"
"""Name of the package as which a worker imports the folder."""


class _Loader(SourceFileLoader):
    """Runs a text that was read before."""

    def __init__(self, fullname: str, source: Source) -> None:
        super().__init__(fullname, source.path)
        self._text = source.text

    def get_code(self, fullname: str) -> CodeType:
        """Returns the compiled text; never uses a bytecode file."""
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        """Returns the text, for tracebacks."""
        return decode_source(self._text)


class _FolderFinder:
    """Finds the modules of a folder under names that begin with `prefix`."""

    def __init__(self, snapshot: FolderSnapshot, prefix: str) -> None:
        self._snapshot = snapshot
        self._prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module of the folder, or None for other names (see `importlib.abc.MetaPathFinder`)."""
        if not fullname.startswith(self._prefix):
            return None
        name = fullname[len(self._prefix) :]
        if not self._prefix and name.partition(".")[0] in sys.stdlib_module_names:
            return None  # rule 2
        source = self._snapshot.importable.get(name)
        if source is not None:
            loader = _Loader(fullname, source)
            within = [os.path.dirname(source.path)] if source.package else None
            return spec_from_file_location(fullname, source.path, loader=loader, submodule_search_locations=within)
        return None


class Modules:
    """The modules of a folder as they were at one moment. Create it once in a process."""

    def __init__(self, snapshot: FolderSnapshot) -> None:
        self._snapshot = snapshot
        sys.meta_path[:0] = [_FolderFinder(snapshot, f"{PACKAGE}."), _FolderFinder(snapshot, "")]
        sys.path.append(snapshot.folder)
        package = ModuleType(PACKAGE)
        package.__path__ = [snapshot.folder]
        sys.modules[PACKAGE] = package

    def run(self, name: str, text: bytes) -> ModuleType:
        """Runs the tool module in the file `name` and returns it. Raises what the module raises."""
        path = os.path.join(self._snapshot.folder, name)
        stem = f"{PACKAGE}.{name[:-3]}"
        module = ModuleType(stem)
        module.__file__ = path
        module.__package__ = PACKAGE
        sys.modules[stem] = module
        try:
            _Loader(stem, Source(path, text, False)).exec_module(module)
        except BaseException:
            sys.modules.pop(stem, None)
            raise
        return module
