"""Which accelerators a worker service has: found through NVML, or told by the operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from schemas.events import WorkerRegistered

_GIB = 1 << 30
_MOST = 100_000


class DevicesError(Exception):
    """The accelerators cannot be had; the message says why, and what would help."""


class Accelerators:
    """What accelerators a worker service has, looked at from time to time.

    Parameters
    ----------
    find : {worker id: (its registration, what CUDA calls it; empty if imagined)} of those there are

    Raises
    ------
    DevicesError
        They cannot be found.
    """

    def __init__(self, find: Callable[[], Mapping[str, tuple[WorkerRegistered, str]]]) -> None:
        self._find = find
        #: {worker id: what CUDA calls it} of all that were ever there.
        self.cuda_ids: dict[str, str] = {}
        #: Those that were there when they were last looked at.
        self.workers: tuple[WorkerRegistered, ...] = ()
        self.look()

    def look(self) -> tuple[WorkerRegistered, ...]:
        """Those there are now.

        Raises
        ------
        DevicesError
            That cannot be said.
        """
        found = self._find()
        self.cuda_ids |= {worker_id: cuda_id for worker_id, (_, cuda_id) in found.items()}
        self.workers = tuple(worker for worker, _ in found.values())
        return self.workers


def told(text: str) -> list[str]:
    """Worker types of ``v100=2,k80=1``, or of the file ``@FILE`` that says so, one for each.

    Raises
    ------
    DevicesError
        It is no such list, or the file cannot be read.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DevicesError(f"{text[1:]}: {error}") from None
    types: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z0-9_-]{1,64})\s*=\s*([0-9]{1,6})\s*", part)
        if found is None or int(found[2]) > _MOST or found[1] in types:
            raise DevicesError(
                f"{text!r} has {part.strip()!r}; expected TYPE=COUNT, each type once, "
                "as in v100=2,k80=1"
            )
        types += [found[1]] * int(found[2])
    return types


def paces(text: str) -> dict[str, float]:
    """{worker type: factor} of ``v100=0.5,k80=2``.

    Raises
    ------
    DevicesError
        It is no such list.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, factor = (each.strip() for each in part.partition("="))
        pace = float(factor) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", factor) else 0.0
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or pace <= 0 or name in found:
            raise DevicesError(
                f"{text!r} has {part.strip()!r}; expected TYPE=FACTOR, a factor above 0, each type "
                "once, as in v100=0.5,k80=2"
            )
        found[name] = pace
    return found


def imagined(
    service: str, types: Sequence[str], *, server_size: int, rack: str, address: str
) -> list[WorkerRegistered]:
    """Workers of an operator's list; ``server_size`` to a server, all on one if 0.

    Parameters
    ----------
    service : its name in the log, ``worker.<name>``
    types : the worker type of each
    server_size : workers to a server
    rack, address : where they are
    """
    name = service.partition(".")[2]
    workers = []
    places: dict[str, int] = {}
    for worker_type in types:
        place = places[worker_type] = places.get(worker_type, -1) + 1
        server = f"{name}-{worker_type}-s{place // server_size}" if server_size else name
        workers.append(
            WorkerRegistered(
                worker_id=f"{name}-{worker_type}-{place}",
                worker_type=worker_type,
                server_id=server,
                reporter=service,
                rack=rack,
                address=address,
            )
        )
    return workers


def detected(service: str, *, rack: str, address: str) -> dict[str, WorkerRegistered]:
    """{CUDA id: worker} of the NVIDIA accelerators of this server, without those that are broken.

    Raises
    ------
    DevicesError
        There is no NVML, or it finds none.
    """
    try:
        import pynvml  # noqa: PLC0415 - only where there are such accelerators
    except ImportError:
        raise DevicesError(
            "nvidia-ml-py is not installed, so accelerators cannot be detected: install it, "
            "or name them (worker.accelerators = 'v100=2')"
        ) from None
    found = {}
    try:
        # Each time anew: it counts the accelerators that there were when it was initialised.
        pynvml.nvmlInit()
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                with suppress(pynvml.NVMLError):
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    worker = _worker(pynvml, handle, service, rack, address)
                    found[_text(pynvml.nvmlDeviceGetUUID(handle))] = worker
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DevicesError(f"NVML finds no accelerator: {error}") from None
    if not found:
        raise DevicesError("NVML finds no accelerator: name them, or start no worker service here")
    return found


def _worker(nvml: Any, handle: Any, service: str, rack: str, address: str) -> WorkerRegistered:
    name = service.partition(".")[2]
    bus_id = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    return WorkerRegistered(
        # The slot it sits in: the same after a restart, and when others disappear.
        worker_id=f"{name}-{re.sub('[^A-Za-z0-9]', '-', bus_id).strip('-').lower()}",
        worker_type=type_of(_text(nvml.nvmlDeviceGetName(handle))),
        server_id=name,
        reporter=service,
        rack=rack,
        address=address,
        memory_gib=round(nvml.nvmlDeviceGetMemoryInfo(handle).total / _GIB, 1),
    )


def type_of(product: str) -> str:
    """Worker type of a product name: ``Tesla V100-SXM2-16GB`` is ``v100``."""
    words = re.split(r"[^A-Za-z0-9]+", product.lower())
    names = [w for w in words if w not in {"nvidia", "tesla", "geforce", "quadro", "graphics"}]
    model = next((word for word in names if re.search(r"\d", word)), "".join(names[:1]))
    return model or "unknown"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
