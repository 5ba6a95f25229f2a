"""The process between the gateway and a worker. Run as a program: `python guardian.py CONTROL DATA`, two descriptors.

It leads its own session, ignores signals, and forks the worker before it imports any other code. Then it only waits, so
a handler that kills its parent process does no harm. It writes the worker's process group to CONTROL (`group N`). When
the worker ends, or CONTROL is closed because the gateway wants that or has ended, it kills the group and everything
else that the worker has started, and writes how the worker ended: `exit N` or `signal N`. No process remains.
"""

import os
import select
import signal
import sys


def main(control: int, data: int) -> None:
    """Forks a worker and guards it until its end."""
    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    for number in _catchable():
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    adopts = adopt_orphans()
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for descriptor in (waker, woken, control):
            os.close(descriptor)
        for number in _catchable():
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _work(data)
        os._exit(0)
    try:
        os.setpgid(worker, worker)  # parent and child both call it, because either may be first
    except OSError:
        pass
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2, data):
        os.dup2(nowhere, descriptor)
    _report(control, f"group {worker}")
    status = None
    while status is None and control not in select.select([control, waker], (), ())[0]:
        os.read(waker, 4096)
        status = _ended(worker)
    status = _end(worker, adopts, status)
    code = os.waitstatus_to_exitcode(status)
    _report(control, f"exit {code}" if code >= 0 else f"signal {-code}")


def _catchable() -> list[int]:
    """Returns the signals whose handlers can be set, except SIGCHLD."""
    signals = []
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.getsignal(number) or signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # reserved by the C library
        signals.append(int(number))
    return signals


def adopt_orphans() -> bool:
    """Makes this process the parent of orphaned descendants, also in other process groups. Returns False if the system
    cannot."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0 and _children() is not None  # PR_SET_CHILD_SUBREAPER
    except (
        ImportError,
        OSError,
        AttributeError,
        MemoryError,
    ):  # where the system forbids executable memory, which ctypes needs
        return False


def _children() -> list[int] | None:
    """Returns the children of this process; None if the system does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return None


def _ended(worker: int) -> int | None:
    """Reaps children that have ended. Returns the worker's status if it has ended, else None."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid in (0, worker):
            return status if pid else None


def _end(worker: int, adopts: bool, status: int | None) -> int:
    """Kills all processes and waits for their end. Returns the worker's status."""
    while True:
        try:
            os.killpg(worker, signal.SIGKILL)
        except OSError:
            pass  # the group has no process left
        for child in _children() or () if adopts else ():
            try:
                os.kill(child, signal.SIGKILL)
            except OSError:
                pass  # a program that runs as another user
        if status is not None and not adopts:
            return status
        try:
            pid, last = os.waitpid(-1 if adopts else worker, 0)
        except ChildProcessError:
            return status or 0
        if pid == worker:
            status = last


def _report(control: int, what: str) -> None:
    try:
        os.write(control, f"{what}\n".encode())
    except OSError:
        pass  # the gateway has gone


def _work(data: int) -> None:
    # The package is found by its path, and only now: this file is run alone, and neither the working folder nor
    # site-packages may come before the standard library.
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.abspath(__file__)
    for _ in "file", "worker", "servertools":
        package = os.path.dirname(package)
    spec = spec_from_file_location(
        "toolwire", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["toolwire"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    from toolwire.servertools.worker import serve

    serve.main(data)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
