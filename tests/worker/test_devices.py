"""Which accelerators a worker service says it has."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from services.worker.devices import DevicesError, detected, imagined, paces, told, type_of


def test_a_list_of_types_is_one_entry_an_accelerator() -> None:
    """``TYPE=COUNT`` pairs in their order; blanks do not matter."""
    assert told("v100=2, k80 =1") == ["v100", "v100", "k80"]
    assert told("v100=0") == []


@pytest.mark.parametrize("text", ["v100", "v100=", "=2", "v100=-1", "a.b=1", "v100=1,v100=1", ""])
def test_what_is_no_such_list_is_refused_with_the_part(text: str) -> None:
    """The message has the whole, the wrong part, and an example."""
    with pytest.raises(DevicesError, match="expected TYPE=COUNT"):
        told(text)


def test_a_list_of_paces_is_one_factor_a_type() -> None:
    """``TYPE=FACTOR`` pairs; none at all is a list, too."""
    assert paces("v100=0.5, k80 = 2") == {"v100": 0.5, "k80": 2.0}
    assert paces("") == {}


@pytest.mark.parametrize("text", ["v100", "v100=0", "v100=-1", "v100=nan", "=2", "a=1,a=2", "a=1,"])
def test_a_pace_that_is_none_is_refused_with_the_part(text: str) -> None:
    """The message has the whole, the wrong part, and an example."""
    with pytest.raises(DevicesError, match="expected TYPE=FACTOR"):
        paces(text)


def test_imagined_workers_are_numbered_by_type_and_stand_on_servers() -> None:
    """Ids have service, type and number; ``server_size`` of a type share a server."""
    workers = imagined("worker.rack1", ["v100"] * 3 + ["k80"], server_size=2, rack="r", address="h")
    assert [(w.worker_id, w.server_id) for w in workers] == [
        ("rack1-v100-0", "rack1-v100-s0"),
        ("rack1-v100-1", "rack1-v100-s0"),
        ("rack1-v100-2", "rack1-v100-s1"),
        ("rack1-k80-0", "rack1-k80-s0"),
    ]
    assert {w.reporter for w in workers} == {"worker.rack1"}


def test_all_imagined_workers_share_one_server_by_default() -> None:
    """Whatever their types."""
    workers = imagined("worker.a", ["v100", "k80"], server_size=0, rack="", address="")
    assert {w.server_id for w in workers} == {"a"}


@pytest.mark.parametrize(
    ("product", "worker_type"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H200", "h200"),
        ("Tesla K80", "k80"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("", "unknown"),
    ],
)
def test_a_product_name_has_a_worker_type(product: str, worker_type: str) -> None:
    """The model, in lower case, without maker, form factor and memory."""
    assert type_of(product) == worker_type


def test_a_list_can_be_a_file_s(tmp_path: Path) -> None:
    """As it stands now; one that cannot be read is named."""
    path = tmp_path / "accelerators"
    with pytest.raises(DevicesError, match=f"{path}: .*No such file"):
        told(f"@{path}")
    path.write_text("v100=2\n")
    assert told(f"@{path}") == ["v100", "v100"]
    path.write_text("v100=1\n")
    assert told(f"@{path}") == ["v100"]


def nvml(*broken: int) -> ModuleType:
    """NVML as on a server of three accelerators, some of which have fallen off their bus."""

    class NVMLError(Exception):
        pass

    def handle(index: int) -> int:
        if index in broken:
            raise NVMLError("GPU is lost")
        return index

    module = ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetUUID=lambda index: f"GPU-{index}",
        nvmlDeviceGetName=lambda _: b"NVIDIA H200",
        nvmlDeviceGetPciInfo=lambda index: SimpleNamespace(busId=f"0000:{index}A:00.0"),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=141 << 30),
    )
    return module


def test_a_broken_accelerator_is_not_there_and_the_others_are_who_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id is the slot's; without any left, that is said."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    whole = detected("worker.a", rack="", address="")
    assert [(w.worker_id, w.worker_type, w.memory_gib) for w in whole.values()] == [
        (f"a-0000-{index}a-00-0", "h200", 141.0) for index in range(3)
    ]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(1))
    assert detected("worker.a", rack="", address="") == {
        cuda_id: worker for cuda_id, worker in whole.items() if cuda_id != "GPU-1"
    }
    monkeypatch.setitem(sys.modules, "pynvml", nvml(0, 1, 2))
    with pytest.raises(DevicesError, match="finds no accelerator"):
        detected("worker.a", rack="", address="")
