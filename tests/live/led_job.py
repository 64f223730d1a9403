"""A job that trains as many steps as a test lets it (``led.py``): one for each byte in a pipe.

It says each in another pipe.
"""

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


with Path(sys.argv[2]).open("w") as said:
    for _ in GavelIterator(
        batches(), load=lambda path: Path(path).read_bytes(), save=lambda path: Path(path).touch()
    ):
        print("step", file=said, flush=True)
