"""Logistic regression in JAX, on whatever accelerator JAX finds.

Runs as it is, and under the scheduler: ``gavel submit -- python jax_regression.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from gavel_iterator import GavelIterator

EPOCHS = int(os.environ.get("EPOCHS", "10"))

parameters = {"weights": jnp.zeros(2), "bias": jnp.zeros(())}
points = np.random.default_rng(0).uniform(-1, 1, (2048, 2)).astype(np.float32)
labels = (points.sum(axis=1) > 0).astype(np.float32)


def load(path: str) -> None:
    """Continue from a checkpoint."""
    with np.load(path) as saved:
        parameters.update({name: jnp.asarray(saved[name]) for name in saved.files})


def save(path: str) -> None:
    """Write a checkpoint; an open file, as numpy appends to names."""
    with Path(path).open("wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in parameters.items()})


def loss(parameters: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    logits = x @ parameters["weights"] + parameters["bias"]
    return jnp.mean(jnp.logaddexp(0.0, logits) - y * logits)


gradient = jax.jit(jax.grad(loss))
batches = [(points[i : i + 64], labels[i : i + 64]) for i in range(0, len(points), 64)]
it = GavelIterator(batches, load=load, save=save)
for _ in range(EPOCHS):
    for x, y in it:
        slopes = gradient(parameters, x, y)
        parameters = {name: parameters[name] - 1.0 * slopes[name] for name in parameters}
    if it.done or it.stopped:
        break
print(f"loss {float(loss(parameters, points, labels)):.4f}")
