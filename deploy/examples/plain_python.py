"""Fits a line by gradient descent: no library but the standard one.

Runs as it is, and under the scheduler: ``gavel submit -- python plain_python.py``.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from gavel_iterator import GavelIterator

EPOCHS = int(os.environ.get("EPOCHS", "20"))
STEP_S = 0.002

model = {"slope": 0.0, "offset": 0.0}


def load(path: str) -> None:
    """Continue from a checkpoint."""
    model.update(json.loads(Path(path).read_text()))


def save(path: str) -> None:
    """Write a checkpoint."""
    Path(path).write_text(json.dumps(model))


def batches() -> list[list[tuple[float, float]]]:
    """Points of y = 3 x - 1, with noise."""
    noise = random.Random(7)
    points = [(x / 320, 3 * x / 320 - 1 + noise.gauss(0, 0.05)) for x in range(320)]
    noise.shuffle(points)
    return [points[first : first + 16] for first in range(0, 320, 16)]


def train(batch: list[tuple[float, float]]) -> None:
    """One step down the gradient of the mean squared error."""
    errors = [(x, model["slope"] * x + model["offset"] - y) for x, y in batch]
    model["slope"] -= 0.3 * sum(x * error for x, error in errors) / len(batch)
    model["offset"] -= 0.3 * sum(error for _, error in errors) / len(batch)
    time.sleep(STEP_S)  # What an accelerator would take.


it = GavelIterator(batches(), load=load, save=save)
for _ in range(EPOCHS):
    for batch in it:
        train(batch)
    if it.done or it.stopped:
        break
print(json.dumps(model))
