"""The house rules that a machine can check, so that nobody has to remember them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("schemas", "services", "replay")
LINT_IMPORTS = (sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()")
SOURCES = sorted(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py"))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the import contracts of the tree in a folder."""
    return subprocess.run(
        [*LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_imports_only_point_down() -> None:
    """The tree keeps every contract of ``pyproject.toml``."""
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("schemas/bad.py", "import services.policy", "replay stands on services"),
        ("services/policy/bad.py", "import replay", "replay stands on services"),
        ("replay/bad.py", "from replay import cli", "nothing stands on the commands"),
        ("services/policy/bad.py", "from services import mechanism", "share nothing but the log"),
        ("services/policy/bad.py", "import services.runtime", "knows the runtime"),
        ("services/policy/bad.py", "import time", "have no clock"),
        ("services/worker/core.py", "from os import environ", "have no clock"),
        ("services/mechanism/bad.py", "import random", "have no clock"),
        ("services/estimator/bad.py", "import cvxpy", "solvers only"),
        ("services/policy/bad.py", "import torch", "torch only"),
        ("replay/bad.py", "import nats", "nats and structlog only"),
    ],
)
def test_a_bad_import_is_found(tmp_path: Path, module: str, statement: str, contract: str) -> None:
    """In a tree of empty packages, one import that points up or out breaks its contract."""
    plant(tmp_path, module, statement)
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(contract in line for line in broken), done.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("services/policy/__main__.py", "import asyncio, services.runtime.log"),
        ("services/policy/good.py", "import cvxpy, numpy"),
        ("services/worker/executor.py", "import asyncio, os"),
        ("replay/good.py", "import services.policy, services.worker, services.runtime"),
    ],
)
def test_a_good_import_is_left_alone(tmp_path: Path, module: str, statement: str) -> None:
    """What the floors allow breaks no contract."""
    plant(tmp_path, module, statement)
    done = lint_imports(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def plant(folder: Path, module: str, statement: str) -> None:
    """Make a tree of empty packages, with the project's contracts and one import."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in (
        *PACKAGES,
        *(f"services/{name}" for name in ("policy", "mechanism", "estimator", "worker", "runtime")),
        "replay/cli",
    ):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    (folder / "services/runtime/log.py").write_text("import time\n")
    (folder / module).write_text(statement + "\n")


def test_schemas_need_msgspec_and_nothing_else() -> None:
    """Whoever reads a log must be able to do it with next to nothing installed."""
    graph = grimp.build_graph("schemas", include_external_packages=True, cache_dir=None)
    modules = {name for name in graph.modules if name.partition(".")[0] == "schemas"}
    imported = {
        found for name in modules for found in graph.find_modules_directly_imported_by(name)
    }
    assert imported - modules - sys.stdlib_module_names == {"msgspec"}


def test_files_and_functions_stay_readable() -> None:
    """A file has at most 500 lines, a function at most 70."""
    long = []
    for path in SOURCES:
        text = path.read_text()
        long += [str(path.relative_to(ROOT))] if text.count("\n") > 500 else []
        long += [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= 70
        ]
    assert not long, "\n".join(long)


def test_a_property_test_tries_the_same_whatever_ran_before_it() -> None:
    """Constants of the modules that happen to be loaded are none of its examples."""
    assert len(providers._get_local_constants()) == 0


def test_an_ignore_says_why() -> None:
    """Whoever silences a checker names the rule, and gives the reason on the same line."""
    silenced = re.compile(r"# (?:noqa|type: ignore|(?:based)?pyright: ignore)\b(.*)")
    reasoned = re.compile(r"(: [A-Z]+\d+(, [A-Z]+\d+)*|\[[\w, -]+\])[ #:-]+\w.{7,}")
    bare = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := silenced.search(line)) and not reasoned.match(found[1])
    ]
    assert not bare, "\n".join(bare)
