"""Distributed data-parallel training in PyTorch; the worker sets torchrun's variables.

Runs as ``torchrun --nproc-per-node 2 torch_ddp.py``, and under the scheduler with a scale factor.
"""

from __future__ import annotations

import os

import torch
from gavel_iterator import GavelIterator
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = int(os.environ.get("EPOCHS", "10"))

torch.manual_seed(0)
torch.set_num_threads(1)
distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = distributed.get_rank()
device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
points = torch.rand(2048, 2)
data = TensorDataset(points, points.sum(dim=1, keepdim=True))
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
model = DistributedDataParallel(torch.nn.Linear(2, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def load(path: str) -> None:
    """Continue from a checkpoint: every rank loads what rank 0 wrote."""
    model.load_state_dict(torch.load(path, map_location=device, weights_only=True))


def save(path: str) -> None:
    """Write a checkpoint: all ranks hold the same weights, so one writes them."""
    if rank == 0:
        torch.save(model.state_dict(), path)


it = GavelIterator(loader, load=load, save=save)
for _ in range(EPOCHS):
    for features, sums in it:
        loss = torch.nn.functional.mse_loss(model(features.to(device)), sums.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if it.done or it.stopped:
        break
weights = ", ".join(f"{weight:.6f}" for weight in model.module.weight.flatten().tolist())
print(f"rank {rank}: weights {weights}")
distributed.destroy_process_group()
