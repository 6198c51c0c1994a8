"""What the repository's own files promise one another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

import neuraldbg
import neuraldbg_engine

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "neuraldbg": ROOT / "packages/neuraldbg-core",
    "neuraldbg-engine": ROOT / "packages/neuraldbg-engine",
}
MODULES = {"neuraldbg": neuraldbg, "neuraldbg-engine": neuraldbg_engine}
IMPORT_LIMIT_S = 0.3


def _pyproject(name: str) -> dict[str, object]:
    return tomllib.loads((PACKAGES[name] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", PACKAGES)
def test_distribution_and_module_state_one_version(name: str) -> None:
    assert metadata.version(name) == MODULES[name].__version__


def test_both_distributions_carry_the_same_version() -> None:
    assert neuraldbg.__version__ == neuraldbg_engine.__version__


def test_engine_accepts_exactly_this_minor_version_of_core() -> None:
    major, minor = (int(part) for part in neuraldbg.__version__.split(".")[:2])
    expected = f"neuraldbg>={major}.{minor},<{major}.{minor + 1}"
    assert expected in _pyproject("neuraldbg-engine")["dependencies"]


def test_core_does_not_require_the_engine() -> None:
    assert not [need for need in metadata.requires("neuraldbg") or [] if "engine" in need]


@pytest.mark.parametrize("name", PACKAGES)
def test_distribution_ships_types_licence_and_readme(name: str) -> None:
    assert (files(MODULES[name]) / "py.typed").is_file()
    project = _pyproject(name)
    assert project["license-files"] == ["LICENSE.md"]
    assert (PACKAGES[name] / "LICENSE.md").is_file()
    assert (PACKAGES[name] / str(project["readme"])).is_file()


def test_licences_are_the_open_one_and_the_engines_own() -> None:
    assert metadata.metadata("neuraldbg")["License-Expression"] == "MIT"
    assert metadata.metadata("neuraldbg-engine")["License-Expression"] == "LicenseRef-Proprietary"


@pytest.mark.parametrize(
    ("group", "name", "target"),
    [
        ("console_scripts", "neuraldbg", "neuraldbg.cli:main"),
        ("pytest11", "neuraldbg", "neuraldbg._pytest_plugin"),
        ("neuraldbg", "engine", "neuraldbg_engine.plugin"),
    ],
)
def test_entry_point_is_declared_and_loads(group: str, name: str, target: str) -> None:
    (point,) = (point for point in metadata.entry_points(group=group) if point.name == name)
    assert point.value == target
    assert point.load() is not None


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_of_a_page_is_a_target(page: str) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"(?m)(?:^\$ |^|`)make ([a-z-]+)", (ROOT / page).read_text()))
    assert named, f"{page} shows no make command"
    assert named <= targets


def test_every_nox_session_of_contributing_exists() -> None:
    sessions = subprocess.run(
        [sys.executable, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    exist = set(re.findall(r"(?m)^[*-] ([a-z-]+)", sessions.stdout))
    named = set(re.findall(r"nox -s ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert named
    assert named <= exist


def test_changelog_and_citation_know_the_version() -> None:
    assert f"\n## [{neuraldbg.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {neuraldbg.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_public_names_are_sorted_and_importable() -> None:
    assert list(neuraldbg.__all__) == sorted(neuraldbg.__all__)
    assert not [name for name in neuraldbg.__all__ if not hasattr(neuraldbg, name)]


def test_import_is_cheap_and_loads_neither_torch_nor_numpy() -> None:
    code = (
        "import json, sys, time; start = time.process_time(); import neuraldbg; "
        "seconds = time.process_time() - start; "
        "print(json.dumps([seconds, sorted({'torch', 'numpy'} & {*sys.modules})]))"
    )
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        )
        for _ in range(3)
    ]
    assert [heavy for _, heavy in runs] == [[], [], []]
    assert min(seconds for seconds, _ in runs) < IMPORT_LIMIT_S


def test_pytest_plugin_costs_a_foreign_test_run_no_torch() -> None:
    assert find_spec("neuraldbg._pytest_plugin") is not None
    code = "import sys; import neuraldbg._pytest_plugin; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
