"""The benchmarks: pages are what the results give, the scorer scores, the runner survives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["log_of_nonpositive", "division_by_zero"],
    "layers": ["body.0"],
    "onset": [10, 12],
}
RIGHT = {
    "failure_type": "numerical_error",
    "cause": "log_of_nonpositive",
    "layer": "body.0",
    "onset": 13,
    "confidence": 0.9,
}
FAULTY = """
import os
import torch
TRUTH = {"failures": ["data_anomaly"], "causes": ["nan_in_input"], "layers": [], "onset": [9, 9]}
def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model) as dbg:
        for step in range(20):
            x = torch.randn(16, 4)
            target = x.sum(1, keepdim=True)
            if step == 9 and not fixed:
                {fault}
            loss = (model(x) - target).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
def harmed(result):
    return True
"""


def _call(code: str) -> object:
    """Return what an expression gives with the benchmarks' modules in reach."""
    program = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n{code}"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout)


def _marks(answers: list[dict[str, object]]) -> dict[str, bool]:
    found = _call(
        "import json, scoring\n"
        f"print(json.dumps(scoring.marks(json.loads({json.dumps(TRUTH)!r}), "
        f"json.loads({json.dumps(answers)!r}))))"
    )
    assert isinstance(found, dict)
    return found


def test_pages_are_what_the_command_renders_from_the_committed_results() -> None:
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / "report.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_results_name_no_host_and_no_path() -> None:
    for path in sorted((BENCHMARKS / "results").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(home|tmp|root|work)/", text)
        document = json.loads(text)
        assert document["versions"]["torch"]
        assert set(document["machine"]) == {"processor", "cores", "memory_gib", "system", "python"}


def test_right_answer_gets_every_column() -> None:
    assert all(_marks([RIGHT]).values())


def test_silence_gets_no_column() -> None:
    assert not any(_marks([]).values())


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"failure_type": "data_anomaly"}, {"type", "type@3", "layer of type", "step of type"}),
        ({"cause": "exp_overflow"}, {"cause@1", "cause@3", "layer", "step"}),
        ({"layer": "body.1"}, {"layer", "layer of type"}),
        ({"layer": None}, {"layer", "layer of type"}),
        ({"onset": 14}, {"step", "step of type"}),
        ({"onset": 8}, {"step", "step of type"}),
        ({"onset": None}, {"step", "step of type"}),
    ],
)
def test_wrong_answer_loses_its_columns_only(change: dict[str, object], lost: set[str]) -> None:
    assert {c for c, right in _marks([RIGHT | change]).items() if not right} == lost


def test_right_cause_in_third_place_counts_for_three_and_in_fourth_for_none() -> None:
    other = RIGHT | {"cause": "exp_overflow"}
    third, fourth = _marks([other, other, RIGHT]), _marks([other, other, other, RIGHT])
    assert third["cause@3"]
    assert not third["cause@1"]
    assert not fourth["cause@3"]


def test_cost_page_shows_each_tool_on_each_model_that_it_was_measured_on() -> None:
    found = {
        "plain_ms": 2.0,
        "ratio": {"control": 1.01, "ours": 1.05},
        "quartiles": {"control": [1.0, 1.02], "ours": [1.04, 1.06]},
        "added_reads": {"control": 0.0, "ours": 0.25},
    }
    other = {key: value for key, value in found.items() if key == "plain_ms"}
    other |= {key: {"control": found[key]["control"]} for key in found if key != "plain_ms"}
    document = {
        "command": "python benchmarks/bench_beside.py --save",
        "date": "2026-01-02",
        "versions": {"torch": "2.13.0"},
        "machine": {"cores": 2, "processor": "a processor"},
        "data": {
            "models": {"mlp": found, "gpt": other},
            "rounds": 5,
            "device": "cpu",
            "memory": {"steps": [2000, 4000], "mb": {"plain": 0.0, "ours": 0.5}},
        },
    }
    pages = _call(
        "import json, report_cost\n"
        f"document = json.loads({json.dumps(document)!r})\n"
        "pages = report_cost.cost, report_cost.accelerator, report_cost.readme_block\n"
        "print(json.dumps([page(document) for page in pages]))"
    )
    assert isinstance(pages, list)
    cost, accelerator, readme = pages
    for page in (cost, accelerator):
        assert "| NeuralDBG, defaults | 1.050 (1.040 to 1.060) | - |" in page
    assert "| NeuralDBG, defaults | 0.2 | - |" in cost
    assert "| NeuralDBG, defaults | +0.50 |" in cost
    assert "| `mlp` | 1.050 (1.040 to 1.060) | 1.010 | 2.00 |" in readme
    assert "`python benchmarks/bench_beside.py --save` with torch 2.13.0" in readme


def _said(command: list[str]) -> str:
    """Return what a script of the benchmarks prints; it must end well."""
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)  # three processes import torch one after the other
def test_accuracy_command_scores_both_editions_and_survives_a_program_that_kills_its_process(
    tmp_path: Path,
) -> None:
    poison = 'x[0, 0] = float("nan")'
    (tmp_path / "archive.py").write_text(FAULTY.replace("{fault}", poison))
    (tmp_path / "bakery.py").write_text(FAULTY.replace("{fault}", "os._exit(3)"))
    (tmp_path / "cellar.py").write_text(FAULTY.replace("{fault}", poison))
    out = tmp_path / "rows.json"
    command = ["bench_accuracy.py", str(tmp_path), "--twins", "--jobs", "1", "--json", str(out)]
    assert "bakery: its process ended or hung" in _said(command)
    rows = {(row["program"], row["form"]): row for row in json.loads(out.read_text())}
    assert set(rows) == {
        ("archive", "faulty"),
        ("archive", "fixed"),
        ("bakery", "fixed"),
        ("cellar", "faulty"),
        ("cellar", "fixed"),
    }
    for edition in ("core", "engine"):
        assert rows["archive", "faulty"]["marks"][edition]["cause@1"]
        assert rows["archive", "fixed"]["marks"][edition]["quiet"]


@pytest.mark.slow
@pytest.mark.timeout(300)  # four processes import torch one after the other
def test_recorded_programs_are_scored_without_training_them_again(tmp_path: Path) -> None:
    poison = 'x[0, 0] = float("nan")'
    program, corpus = tmp_path / "archive.py", tmp_path / "corpus"
    program.write_text(FAULTY.replace("{fault}", poison))
    for command in (
        ["corpus.py", str(corpus), str(program), "--jobs", "1"],
        ["fit_engine.py", "score", str(corpus), "--jobs", "1"],
    ):
        said = _said(command)
    assert "2 runs of 1 programs" in said
    assert re.search(r"engine +detected 1/1 .*cause@1 1/1 .*quiet 1/1", said)
