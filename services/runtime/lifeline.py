"""A child process that does not outlive its parent, however the parent ends (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
#: Looked up before a fork: in the child there may be no time for it.
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int = 0) -> None:
    """Called in the child: it gets SIGTERM when the thread that started it is gone.

    Parameters
    ----------
    parent : process id of who started it, where it is known: if that is gone already, this ends
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent and os.getppid() != parent:
        os._exit(1)
