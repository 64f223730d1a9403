"""What a lease has left on disk, read without the training process that wrote it.

For a process that has ended while nobody listened: its checkpoints tell how far it came. They are
laid out by the SDK (``sdk/src/gavel_iterator/checkpoints.py``).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from urllib.parse import quote


def newest_checkpoint(folder: Path, lease_id: str) -> tuple[float, bool]:
    """Steps of a lease's newest checkpoint, 0 if none, and whether they are all of the job's.

    Parameters
    ----------
    folder : of the job's checkpoints
    lease_id : whose
    """
    own = folder / f"lease-{quote(lease_id, safe='')}"
    try:
        found = sorted(own.glob("*/rank-0/checkpoint.json"), reverse=True)
    except OSError:
        return 0.0, False
    for path in found:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            world_size = int(record["world_size"])
            steps, complete = float(record["steps"]), bool(record["complete"])
            parts = (path.parents[1] / f"rank-{rank}" for rank in range(world_size))
            if 0 <= steps < math.inf and all(part.is_dir() for part in parts):
                return steps, complete
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            # The training process may have written anything.
            continue
    return 0.0, False
