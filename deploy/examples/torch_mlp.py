"""A small perceptron in PyTorch, on one accelerator or the CPU.

Runs as it is, and under the scheduler: ``gavel submit -- python torch_mlp.py``.
"""

from __future__ import annotations

import os

import torch
from gavel_iterator import GavelIterator
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "10"))
LOADER_PROCESSES = int(os.environ.get("LOADER_PROCESSES", "0"))

torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
points = torch.rand(2048, 2)
data = TensorDataset(points, (points.prod(dim=1) > 0.25).long())
loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=LOADER_PROCESSES)
model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).to(
    device
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def load(path: str) -> None:
    """Continue from a checkpoint."""
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def save(path: str) -> None:
    """Write a checkpoint."""
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


if __name__ == "__main__":
    it = GavelIterator(loader, load=load, save=save)
    for _ in range(EPOCHS):
        for features, labels in it:
            loss = torch.nn.functional.cross_entropy(model(features.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if it.done or it.stopped:
            break
    right = (model(points.to(device)).argmax(dim=1).cpu() == data.tensors[1]).float().mean()
    print(f"accuracy {right.item():.3f}")
