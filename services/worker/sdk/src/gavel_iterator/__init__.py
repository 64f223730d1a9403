"""Lets the Gavel scheduler pause, move and resume a training loop.

::

    it = GavelIterator(loader, load=load, save=save)
    for batch in it:
        ...

Outside the scheduler this is the loader itself. ``protocol.py`` describes what is said to the
worker service, ``settings.py`` what the environment holds, ``checkpoints.py`` what lies on disk.
"""

from .errors import (
    CheckpointError,
    GavelError,
    LeaseEnded,
    LoaderError,
    SettingsError,
    WorkerError,
)
from .iterator import GavelIterator

__all__ = [
    "CheckpointError",
    "GavelError",
    "GavelIterator",
    "LeaseEnded",
    "LoaderError",
    "SettingsError",
    "WorkerError",
]
