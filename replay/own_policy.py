"""A policy in a file of one's own: ``--policy mine.py:MyPolicy``, on the local command line only.

What a log names is never loaded: a service runs the policies it was installed with.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from services.policy.catalog import register
from services.policy.problem import PolicyError


class OwnPolicyError(PolicyError):
    """The file has no such policy; the message says what it lacks."""


def load(name: str) -> None:
    """Register the policy if ``name`` is FILE.py:CLASS; any other name is left alone.

    Raises
    ------
    OwnPolicyError
        There is no such file or class, the file does not load, or the class is no policy.
    """
    file, colon, attribute = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        return
    module = _load(Path(file))
    make = getattr(module, attribute, None)
    if make is None:
        there = ", ".join(n for n, v in vars(module).items() if isinstance(v, type)) or "none"
        raise OwnPolicyError(f"{file} has no class {attribute!r}; its classes are: {there}")
    if not callable(getattr(make, "solve", None)):
        raise OwnPolicyError(
            f"{name} is no policy: it needs a method solve(self, problem) -> Allocation"
        )
    register(name, make)


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise OwnPolicyError(f"--policy names the file {path}, which does not exist")
    spec = importlib.util.spec_from_file_location(f"own_policy_{path.stem}", path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None, "as above"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OwnPolicyError(f"{path} does not load: {type(error).__name__}: {error}") from error
    return module
