"""How a tool module's text is run, and how it finds what stands beside it: other files of its folder.

Rules:

1. What runs is the text that was read (`sources`); no bytecode is written. Only what was not read, such as compiled
   extensions and data, comes from the folder itself.
2. `import helper` finds `helper.py` beside the module before anything that is installed, but never in the place of a
   module of the standard library: a tool module called `calendar.py` must not become everybody's `calendar`. Relative
   imports work too; of what is imported both ways there are two.
3. In a process that is not the tools' alone (`private`) all of this stands under a name of its own, so that two
   folders, or two versions of one, do not meet in `sys.modules`. The folder's code has its own `__import__` there.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from itertools import count
from types import CodeType, ModuleType
from typing import Any, Final

from .sources import Snapshot, Source

_NUMBERS: Final = count()
"""Makes names in `sys.modules` unique in the process, whoever loads."""


class _Loader(SourceFileLoader):
    """Runs a text that was read. `builtins_`: what its code has for builtins, if not the process's."""

    def __init__(self, fullname: str, source: Source, builtins_: dict[str, Any] | None) -> None:
        super().__init__(fullname, source.path)
        self._text = source.text
        self._builtins = builtins_

    def get_code(self, fullname: str) -> CodeType:
        """Never from a file of bytecode."""
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        """For tracebacks."""
        return decode_source(self._text)

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        if self._builtins is not None:
            module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)


class _Finder:
    """Finds what stands in a folder under names that begin with `prefix`."""

    def __init__(self, snapshot: Snapshot, prefix: str, builtins_: dict[str, Any] | None) -> None:
        self._snapshot = snapshot
        self._prefix = prefix
        self._builtins = builtins_

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not fullname.startswith(self._prefix):
            return None
        name = fullname[len(self._prefix) :]
        if not self._prefix and not _may_stand(name):
            return None
        source = self._snapshot.importable.get(name)
        if source is not None:
            loader = _Loader(fullname, source, self._builtins)
            within = [os.path.dirname(source.path)] if source.package else None
            return spec_from_file_location(fullname, source.path, loader=loader, submodule_search_locations=within)
        return None


def _may_stand(name: str) -> bool:
    """Rule 2: whether a module beside may be what an absolute import means."""
    return name.partition(".")[0] not in sys.stdlib_module_names


class Modules:
    """The modules of a folder as it was at one moment. Made once in a worker; with `private` as often as wanted."""

    def __init__(self, snapshot: Snapshot, *, private: bool) -> None:
        self._snapshot = snapshot
        self.package = f"toolwire_tools_{next(_NUMBERS)}"
        own = {**vars(builtins), "__import__": self._import} if private else None
        self._builtins = own
        self._finders = [_Finder(snapshot, f"{self.package}.", own)]
        if not private:
            self._finders.append(_Finder(snapshot, "", None))
            sys.path.append(snapshot.folder)
        sys.meta_path[:0] = self._finders
        package = ModuleType(self.package)
        package.__path__ = [snapshot.folder]
        sys.modules[self.package] = package

    def run(self, name: str, text: bytes) -> ModuleType:
        """Run the tool module in the file called `name`; whatever it raises, is raised."""
        path = os.path.join(self._snapshot.folder, name)
        stem = f"{self.package}.{name[:-3]}"
        module = ModuleType(stem)
        module.__file__ = path
        module.__package__ = self.package
        sys.modules[stem] = module
        try:
            _Loader(stem, Source(path, text, False), self._builtins).exec_module(module)
        except BaseException:
            sys.modules.pop(stem, None)
            raise
        return module

    def forget(self) -> None:
        """Nothing more is imported; what still runs keeps what it has."""
        for finder in self._finders:
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)
        for name in [name for name in list(sys.modules) if name == self.package or name.startswith(f"{self.package}.")]:
            sys.modules.pop(name, None)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """`__import__` for the folder's code (rule 3)."""
        first = name.partition(".")[0]
        if level or not _may_stand(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if first not in self._snapshot.importable:
            try:
                return builtins.__import__(name, globals, locals, fromlist or (), 0)
            except ModuleNotFoundError as error:
                path = [self._snapshot.folder]
                if error.name != first or PathFinder.find_spec(f"{self.package}.{first}", path) is None:
                    raise  # else: a folder without `__init__.py`, or compiled code, beside the module
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{self.package}.{first}"]
