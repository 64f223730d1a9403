"""A job of the demo that trains for real: a small regression in PyTorch, at an imagined GPU's pace.

Run as a script in a task's environment, as ``services/worker/paced_job.py`` is; the difference is
that there are weights to save and to load.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from gavel_iterator import GavelIterator

from services.worker.paced_job import PacedLoader


def main() -> None:
    """Train for as long as the lease lasts."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    points = torch.rand(256, 4)
    sums = points.sum(dim=1, keepdim=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.zeros(())
    iterator = GavelIterator(
        PacedLoader(Path(os.environ["GAVEL_PACE_FILE"])),
        load=lambda path: model.load_state_dict(torch.load(path, weights_only=True)),
        save=lambda path: torch.save(model.state_dict(), path),
    )
    for _ in iterator:
        loss = torch.nn.functional.mse_loss(model(points), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"after {iterator.iteration} steps: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
