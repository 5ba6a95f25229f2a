"""How a tool module's text is run, and how it finds what stands beside it: other files of its folder.

Rules:

1. What runs is the text that was read (`sources`); no bytecode is written. Only what was not read, such as compiled
   extensions and data, comes from the folder itself.
2. `import helper` finds `helper.py` beside the module before anything that is installed, but never in the place of a
   module of the standard library: a tool module called `calendar.py` must not become everybody's `calendar`. Relative
   imports work too; of what is imported both ways there are two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Final

from .sources import Snapshot, Source

PACKAGE: Final = "toolwire_tools"
"""The folder, as a package."""


class _Loader(SourceFileLoader):
    """Runs a text that was read."""

    def __init__(self, fullname: str, source: Source) -> None:
        super().__init__(fullname, source.path)
        self._text = source.text

    def get_code(self, fullname: str) -> CodeType:
        """Never from a file of bytecode."""
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        """For tracebacks."""
        return decode_source(self._text)


class _Finder:
    """Finds what stands in a folder under names that begin with `prefix`."""

    def __init__(self, snapshot: Snapshot, prefix: str) -> None:
        self._snapshot = snapshot
        self._prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
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
    """The modules of a folder as it was at one moment. Made once in a process."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        sys.meta_path[:0] = [_Finder(snapshot, f"{PACKAGE}."), _Finder(snapshot, "")]
        sys.path.append(snapshot.folder)
        package = ModuleType(PACKAGE)
        package.__path__ = [snapshot.folder]
        sys.modules[PACKAGE] = package

    def run(self, name: str, text: bytes) -> ModuleType:
        """Run the tool module in the file called `name`; whatever it raises, is raised."""
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
