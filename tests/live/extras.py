"""Virtual environments that have what one extra of the project brings, and nothing else.

Nothing is fetched: each package that the extra leads to is linked from where the tests run.
"""

from __future__ import annotations

import tomllib
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.live.cluster import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def environment(folder: Path, extra: str) -> Path:
    """Make an environment with an extra's packages; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in closure(extra).values():
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin" / "python"


def closure(extra: str) -> dict[str, metadata.Distribution]:
    """{name: distribution} of all that the project needs with an extra, as far as it is here."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [*_PROJECT["dependencies"], f"{_PROJECT['name']}[{extra}]"]
    seen: set[str] = set()
    while wanted:
        text = wanted.pop()
        if text in seen:
            continue
        seen.add(text)
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == _PROJECT["name"]:
            for asked in requirement.extras:
                wanted += _PROJECT["optional-dependencies"][asked]
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # Of another platform, or NVML where there is none.
            continue
        for needed in found[name].requires or ():
            marker = Requirement(needed).marker
            asked_for = requirement.extras or {""}
            if marker is None or any(marker.evaluate({"extra": one}) for one in asked_for):
                wanted.append(needed.partition(";")[0])
    return found
