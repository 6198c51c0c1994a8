# SPDX-License-Identifier: MIT
"""The example plugin is what the tutorial builds, and works as an installed one."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from neuraldbg import hookspecs
from neuraldbg.plugins.loading import HOOKS
from neuraldbg.settings import Settings
from neuraldbg.testing import steps_of
from neuraldbg.trace import TraceWriter

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples/plugin"
TUTORIAL = (ROOT / "docs/write-a-detector.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/hooks.md").read_text(encoding="utf-8")
FILES = [
    "pyproject.toml",
    "src/neuraldbg_drift/__init__.py",
    "src/neuraldbg_drift/detector.py",
    "src/neuraldbg_drift/plugin.py",
    "tests/test_drift.py",
]


@pytest.fixture
def environment(tmp_path):
    """Return an environment in which the example is installed, without a package installer."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    information = tmp_path / f"neuraldbg_drift-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in project["dependencies"])
    )
    (point,) = project["entry-points"]["neuraldbg"].items()
    (information / "entry_points.txt").write_text("[neuraldbg]\n{} = {}\n".format(*point))
    paths = [str(PLUGIN / "src"), str(tmp_path), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def python(source, environment, *arguments, **variables):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source, *map(str, arguments)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tutorial_builds_exactly_the_example():
    block = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    shown = dict(block.findall(TUTORIAL))
    assert list(shown) == FILES
    for name, content in shown.items():
        assert content == (PLUGIN / name).read_text(encoding="utf-8"), name


def test_the_example_has_no_file_that_the_tutorial_leaves_out():
    made = {".pyc", ".typed"}
    there = {
        path.relative_to(PLUGIN).as_posix()
        for path in PLUGIN.rglob("*")
        if path.is_file() and path.suffix not in made and "__pycache__" not in path.parts
    }
    assert there == {*FILES, "README.md"}


def test_the_installed_example_is_found_by_its_entry_point(environment):
    source = (
        "from neuraldbg.plugins import PluginHost\n"
        "host = PluginHost(is_strict=True)\n"
        "(found,) = [one for one in host.describe() if one.name == 'drift']\n"
        "print(found.distribution, found.version, *found.hooks, found.state)\n"
        "print(host.detectors()[-1].__name__)\n"
        "print('weight_decay_missing' in host.vocabulary().causes)\n"
    )
    assert python(source, environment).splitlines() == [
        "neuraldbg-drift 1.0.0 neuraldbg_causes neuraldbg_detectors on",
        "WeightDrift",
        "True",
    ]


@pytest.mark.parametrize("names", ["drift", "all", "other,drift"])
def test_the_installed_example_can_be_disabled(environment, names):
    source = (
        "from neuraldbg.plugins import PluginHost\n"
        "print([one.state for one in PluginHost().describe() if one.name == 'drift'])\n"
        "print('WeightDrift' in [one.__name__ for one in PluginHost().detectors()])\n"
    )
    disabled = python(source, environment, NEURALDBG_DISABLE_PLUGINS=names)
    assert disabled.splitlines() == ["['disabled']", "False"]


def test_the_tests_of_the_example_pass_where_it_is_installed(environment, tmp_path):
    arguments = ["-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *arguments, "--rootdir", PLUGIN, "-c", os.devnull, PLUGIN / "tests"],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_example_runs_over_the_trace_of_an_earlier_run(environment, tmp_path):
    path = tmp_path / "run.ndbg"
    writer = TraceWriter(path, steps_of("healthy")[0].run, Settings())
    for facts in steps_of("healthy"):
        facts.parameter[1] *= 1 + facts.step
        writer.write_step(facts)
    writer.finish()
    source = (
        "import sys\n"
        "from neuraldbg.testing import replay\n"
        "from neuraldbg.trace import open_trace\n"
        "from neuraldbg_drift.detector import WeightDrift\n"
        "for event in replay(WeightDrift, open_trace(sys.argv[1])): print(event)\n"
        "assert 'torch' not in sys.modules\n"
    )
    said = python(source, environment, path)
    assert said == "optimizer_instability in 'fc2' at step 7: stable -> weight_drift\n"


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_documented_with_its_exact_signature(hook):
    function = getattr(hookspecs, hook)
    signature = str(inspect.signature(function)).replace("'", "")
    section = REFERENCE.split(f"## `{hook}`\n", 1)[1].split("\n## ", 1)[0]
    assert f"```py\ndef {hook}{signature}: ...\n```" in section
    plain = " ".join(section.split())
    for paragraph in inspect.getdoc(function).split("\n\n")[:1]:
        assert " ".join(paragraph.split()) in plain
    for argument in inspect.signature(function).parameters:
        assert f"`{argument}`\n: " in section


def test_no_hook_is_documented_that_does_not_exist():
    assert sorted(re.findall(r"^## `(\w+)`$", REFERENCE, re.MULTILINE)) == HOOKS


def test_hooks_are_annotated_and_take_at_most_four_arguments():
    for hook in HOOKS:
        signature = inspect.signature(getattr(hookspecs, hook))
        assert len(signature.parameters) <= 4
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty
