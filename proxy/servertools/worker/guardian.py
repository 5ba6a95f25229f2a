"""The process between the gateway and a worker. Run as a program: `python guardian.py CONTROL DATA`, two descriptors.

It is the leader of a session, forks the worker before anything is imported that could be somebody's, and then only
watches. So a handler that kills its parent, or all of its group, meets nobody who matters. The gateway kills the group.

- The worker ends: what became of it (`exit N` or `signal N`) is said on CONTROL, and what is left of the group is
  killed, this process included.
- CONTROL ends, because the gateway is gone: the group is killed.
"""

import os
import select
import signal
import sys


def main(control: int, data: int) -> None:
    """Keep a worker."""
    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass  # the C library's own
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        for descriptor in (waker, woken, control):
            os.close(descriptor)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _work(data)
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2, data):
        os.dup2(nowhere, descriptor)
    while True:
        ready = select.select([control, waker], (), ())[0]
        if control in ready:
            break  # the gateway never says anything: it is gone
        os.read(waker, 4096)
        pid, status = os.waitpid(worker, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            os.write(control, (f"exit {code}" if code >= 0 else f"signal {-code}").encode())
            break
    os.killpg(0, signal.SIGKILL)


def _work(data: int) -> None:
    # The package is found by its place, and only now: this file stands alone, and neither the working folder nor
    # site-packages may come before the standard library.
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.abspath(__file__)
    for _ in "file", "worker", "servertools":
        package = os.path.dirname(package)
    spec = spec_from_file_location("proxy", os.path.join(package, "__init__.py"), submodule_search_locations=[package])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["proxy"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    from proxy.servertools.worker import serve

    serve.main(data)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
