"""The zoo: truths are well-formed, programs and operators run and undo what they patch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "benchmarks" / "zoo"
VOCABULARY = tomllib.loads(
    (ROOT / "packages/neuraldbg-core/src/neuraldbg/causes.toml").read_text(encoding="utf-8")
)


def _call(code: str) -> object:
    """Return what the last expression of a script gives, run where the zoo's modules are."""
    script = f"import json, sys\nsys.path.insert(0, {str(ZOO)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def truths() -> dict[str, dict[str, object]]:
    """The truth of each program of the zoo, by its name."""
    code = (
        "from pairs import expand, load\nprint(json.dumps({n: load(n).TRUTH for n in expand([])}))"
    )
    return _call(code)  # type: ignore[return-value]


def test_truths_name_known_causes_and_failures(truths):
    wrong = [
        (name, word)
        for name, truth in truths.items()
        for key, known in (("causes", "causes"), ("failures", "failure_types"))
        for word in truth[key]
        if word not in VOCABULARY[known]
    ]
    assert not wrong


def test_truths_are_whole(truths):
    for name, truth in truths.items():
        assert set(truth) == {"failures", "causes", "layers", "onset"}, name
        assert bool(truth["causes"]) == bool(truth["failures"]), name
        assert all(isinstance(layer, str) for layer in truth["layers"]), name
        first, last = truth["onset"] or (0, 0)
        assert 0 <= first <= last, name
        file = Path(name.partition("::")[0]).stem
        assert bool(truth["causes"]) != file.startswith("healthy") or "optional" in name, name


def test_every_program_belongs_to_an_architecture(truths):
    code = f"""
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from programs_of import architecture
print(json.dumps([name for name in {sorted(truths)!r} if architecture(name) == "other"]))
"""
    assert _call(code) == []


def test_every_cause_has_a_program(truths):
    first = {truth["causes"][0] for truth in truths.values() if truth["causes"]}
    assert set(VOCABULARY["causes"]) - first == set()


def test_operators_name_known_causes_and_a_way_in():
    code = """
import importlib
from inject import OPERATORS
out = {}
for name in OPERATORS:
    m = importlib.import_module(f"operators.{name}")
    way = hasattr(m, "before") or hasattr(m, "inside")
    out[name] = [m.FAILURES, m.CAUSES, bool(m.__doc__), way]
print(json.dumps(out))
"""
    operators = _call(code)
    assert len(operators) >= 15
    for name, (failures, causes, said, way) in operators.items():
        assert set(failures) <= set(VOCABULARY["failure_types"]), name
        assert set(causes) <= set(VOCABULARY["causes"]), name
        assert said, name
        assert way, name


def test_a_program_is_harmed_by_its_fault_and_not_without():
    code = """
from check import check
name = sys.path[0] + "/programs/bridge_sway_dataparallel.py::step_forgotten"
print(json.dumps(check((name, (0,), 1.0))))
"""
    row = _call(code)
    assert row["wrong"] == []
    assert [run["harmed"] for run in row["runs"]] == [True, False]


def test_scenarios_name_faults_of_the_zoo(truths):
    listed = tomllib.loads((ZOO / "scenarios.toml").read_text(encoding="utf-8"))
    known = {Path(name).name.replace(".py", "") for name in truths}
    assert {name for names in listed.values() for name in names} - known == set()


def test_the_committed_self_check_passes_every_pair_as_it_stands():
    code = """
from check import expand, kept, load
names = expand([])
left = set(names) - set(kept(names, [0, 1, 2], 1.0))
print(json.dumps(sorted(name for name in left if not load(name).skip)))
"""
    # Mended by `python benchmarks/zoo/check.py --save`, which runs what is new or changed.
    assert _call(code) == []


@pytest.fixture
def examples(tmp_path) -> tuple[Path, Path]:
    """Files of the program and of the operator that the zoo's page shows, written to disk."""
    shown = re.findall(r"(?s)```python\n(.*?)```", (ZOO / "README.md").read_text(encoding="utf-8"))
    files = tmp_path / "lamp_wattage.py", tmp_path / "nan_at_twenty.py"
    for file, text in zip(files, shown, strict=True):
        file.write_text(text, encoding="utf-8")
    return files


def test_the_page_shows_a_program_that_the_self_check_passes(examples):
    name = str(examples[0])
    row = _call(f"from check import check\nprint(json.dumps(check(({name!r}, (0, 1, 2), 1.0))))")
    assert row["wrong"] == []
    assert [run["harmed"] for run in row["runs"]] == [True, False] * 3


def test_the_page_shows_an_operator_that_hurts_a_program_it_has_never_seen(examples):
    program, operator = map(str, examples)
    code = f"""
import inject, pairs
sys.modules["operators.nan_at_twenty"] = pairs.module_of({operator!r})
rows = inject.attempt(({program!r}, ("nan_at_twenty", "poison_nan", "eval_mode")))
print(json.dumps([[row["operator"], row["program"], row["why"], row.get("onset")] for row in rows]))
"""
    same = "no layer of the model behaves otherwise in evaluation mode"
    assert _call(code) == [
        ["nan_at_twenty", "lamp_wattage", "", [20, 20]],
        ["poison_nan", "lamp_wattage", "", [20, 20]],
        ["eval_mode", "lamp_wattage", same, None],
    ]


def test_the_self_check_goes_on_where_it_was_cut_short(tmp_path):
    first, second = tmp_path / "quince.py", tmp_path / "medlar.py"
    for file in (first, second):
        file.write_text(
            'TRUTH = {"causes": []}\n'
            "def train(watch, fixed=False, seed=0): return {}\n"
            "def harmed(result): return False\n"
        )
    code = f"""
import check, record
from pathlib import Path
record.RESULTS = Path({str(tmp_path / "results")!r})
names = [{str(first)!r}, {str(second)!r}]
check.save(check.check((names[0], (0,), 1.0)))
half = [Path(n).name for n in check.kept(names, [0], 1.0)]
check.save(check.check((names[1], (0,), 1.0)))
whole = len(check.kept(names, [0], 1.0))
others = len(check.kept(names, [0, 1], 1.0))
Path(names[0]).write_text(Path(names[0]).read_text().replace("False", "True"))
changed = [Path(n).name for n in check.kept(names, [0], 1.0)]
check.save(check.check((names[1], (0,), 1.0)), only={{"medlar"}})
check.save({{"program": "sloe", "skipped": "needs sloe", "wrong": []}})
check.save({{"program": "sloe::sour", "wrong": []}})
check.save({{"program": "sloe", "skipped": "needs sloe", "wrong": []}})
left = [row["program"] for row in record.load("self-check")["data"]["rows"]]
print(json.dumps([half, whole, others, changed, left]))
"""
    assert _call(code) == [["quince.py"], 2, 0, ["medlar.py"], ["medlar", "sloe::sour"]]


def test_an_operator_hurts_a_program_and_leaves_no_trace():
    code = """
import importlib, math, torch
from check import Silent
from pairs import load
from seam import train_with
program = load(sys.path[0] + "/programs/healthy_seal_hinge_zero.py")
calls, kinds = [], []
class Watch(Silent):
    def __init__(self, model, **options):
        calls.append(model)
before = torch.optim.Optimizer.zero_grad
last = {}
for name in ("poison_nan", "drop_zero_grad", "drop_optimizer_step"):
    operator = importlib.import_module(f"operators.{name}")
    result, truth = train_with(operator, program.train, Watch, seed=0)
    last[name] = [math.isfinite(result["loss"][-1]), result["learned"], truth["onset"]]
kinds = [type(model) is torch.nn.Sequential for model in calls]
print(json.dumps([last, kinds, torch.optim.Optimizer.zero_grad is before]))
"""
    last, kinds, restored = _call(code)
    assert last["poison_nan"][::2] == [False, [20, 20]]
    assert last["drop_optimizer_step"][1] is False
    assert last["drop_zero_grad"][2] == [0, 2]
    assert kinds == [True, True, True]
    assert restored


def test_a_program_whose_library_is_missing_is_skipped_with_the_reason(tmp_path):
    file = tmp_path / "quince_graph.py"
    file.write_text('"""Quinces."""\nREQUIRES = ["no_such_library"]\nimport no_such_library\n')
    code = f"from check import check\nprint(json.dumps(check(({str(file)!r}, (0,), 1.0))))"
    assert _call(code)["skipped"] == "needs no_such_library, which is not installed"
