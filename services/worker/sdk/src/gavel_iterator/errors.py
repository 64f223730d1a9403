"""What can go wrong, by whose fault it is."""

from __future__ import annotations


class GavelError(Exception):
    """Base of what this package raises, but for ``LeaseEnded``."""


class SettingsError(GavelError):
    """The environment the worker service made is wrong; the message names the variable."""


class WorkerError(GavelError):
    """The worker service does not answer, or refuses this process."""


class CheckpointError(GavelError):
    """A checkpoint cannot be written, or none of those that exist can be loaded."""


class LoaderError(GavelError):
    """The loader cannot give the batches that the job's steps need."""


class LeaseEnded(SystemExit):
    """Another pass was begun after the lease's end; uncaught, the process exits with code 0."""

    def __init__(self) -> None:
        super().__init__(0)
