"""A job that trains as many steps as a test lets it: one for each byte in a pipe (``led.py``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gavel_iterator import GavelIterator


def batches() -> Iterator[bytes]:
    """Byte by byte, so that none is taken that is not trained."""
    pipe = os.open(sys.argv[1], os.O_RDONLY)
    while step := os.read(pipe, 1):
        yield step


for _ in GavelIterator(
    batches(), load=lambda path: Path(path).read_bytes(), save=lambda path: Path(path).touch()
):
    pass
