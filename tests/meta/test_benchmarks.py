"""The benchmarks: pages are what the results give, the scorer scores, the runner survives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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
            "sets": 3,
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
    for page in (cost, accelerator, readme):
        assert "3 sets" in page
        assert "5 rounds" in page


FAKE = """
import json, bench_beside

STEPS, LOG = {}, []

class Fake(bench_beside.Loop):
    def __init__(self, python, tool, model, malloc, device="cpu"):
        assert malloc["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
        self.tool, self._shorter = tool, bench_beside.SHORTER.get((tool, model), 1)
        STEPS[tool] = 0

    def __exit__(self, *_):
        pass

    def ask(self, command):
        what, _, count = command.partition(" ")
        LOG.append((self.tool, STEPS[self.tool], what, int(count)))
        STEPS[self.tool] += int(count)
        return {"figure": int(count) * (0.02 if self.tool == "ours" else 0.01)}

bench_beside.Loop = Fake
args = bench_beside.parsed(["--model", "tiny", "--sets", "2", "--rounds", "3"])
tools = dict.fromkeys(("plain", "control", "ours", "torchlens-trace"), "python")
found = bench_beside.side_by_side(args, tools)
"""


def _beside() -> tuple[dict[str, Any], list[tuple[str, int, str, int]]]:
    found, log = _call(  # type: ignore[misc]
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        + "\n".join(f"    {line}" for line in FAKE.splitlines())
        + "\nprint(json.dumps([found, LOG]))"
    )
    return found["tiny"], [tuple(line) for line in log]


def test_beside_tools_are_compared_at_the_same_training_step_over_half_a_second() -> None:
    _, log = _beside()
    starts: dict[str, list[int]] = {}
    for tool, age, what, _ in log:
        if what == "turn":
            starts.setdefault(tool, []).append(age)
    # Two sets of a warm-up and three turns; the slow tool is in the first set only.
    assert starts["plain"] == [0, 8000, 8050, 8100] * 2
    assert starts["ours"] == starts["control"] == starts["plain"]
    assert starts["torchlens-trace"] == starts["plain"][:4]
    assert ("torchlens-trace", 8000, "turn", 1) in log
    assert ("torchlens-trace", 8001, "aside", 49) in log


def test_beside_figure_is_the_median_over_sets_of_the_median_over_rounds() -> None:
    answer = _call(
        "import json, bench_beside\n"
        "reads = {'plain': 1, 'ours': 3}\n"
        "sets = [{'spent': {'plain': [1.0, 1.0, 2.0], 'ours': spent}, 'reads': reads | {}}"
        " for spent in ([1.1, 9.0, 2.4], [1.5, 1.0, 3.2], [2.0, 2.1, 0.2])]\n"
        "sets[0]['spent']['slow'], sets[0]['reads']['slow'] = [5.0, 5.0, 20.0], 91\n"
        "print(json.dumps(bench_beside.figures(sets)))"
    )
    assert isinstance(answer, dict)
    assert answer["by_set"] == {"ours": [1.2, 1.5, 2.0], "slow": [5.0]}
    assert answer["ratio"] == {"ours": 1.5, "slow": 5.0}
    assert answer["added_reads"] == {"ours": 2, "slow": 90}
    assert answer["plain_ms"] == 1000.0


def test_a_loop_in_lockstep_answers_each_command() -> None:
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / "lockstep.py"), "ours", "tiny"],
        input="turn 3\naside 2\nsyncs 4\nmemory 5\n",
        capture_output=True,
        text=True,
        check=True,
    )
    turn, aside, reads, memory = map(json.loads, answer.stdout.splitlines())
    assert turn["seconds"] > 0
    assert aside["seconds"] > 0
    assert reads["calls"] >= 4  # the loop's own: its loss, once per step
    assert isinstance(memory["mb"], float)


def _scenario(code: str) -> dict[str, Any]:
    found = _call(f"import json, dogfood, report_dogfood\nprint(json.dumps({code}))")
    assert isinstance(found, dict)
    return found


def test_scenario_says_what_a_wrapper_changed_about_the_answer() -> None:
    compiled = [{"cause": "nan_in_input", "layer": "module.0", "onset": 6}]
    plain = [{"cause": "nan_in_input", "layer": "0", "onset": 7, "says": "NaN entered."}]
    rows = [{"answers": {"engine": one}} for one in (compiled, plain)]
    found = _scenario(f"dogfood.twin(*json.loads({json.dumps(rows)!r}))")
    assert found == {
        "says": "NaN entered.",
        "same": {"cause": True, "layer": True, "onset": False},
    }


def test_losses_are_the_same_only_where_each_one_is() -> None:
    found = _scenario(
        "{'same': dogfood.is_same([1.0, float('nan')], [1.0, float('nan')]),"
        " 'other': dogfood.is_same([1.0, 2.0], [1.0, float('nan')]),"
        " 'unknown': dogfood.is_same([1.0], []), 'none': dogfood.is_same([], [])}"
    )
    assert found == {"same": True, "other": False, "unknown": None, "none": None}


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


def test_scenario_page_shows_the_twin_without_wrapper_and_whether_losses_changed() -> None:
    row = {
        "architecture": "torch.compile",
        "program": "kettle",
        "text": "A kettle.",
        "signs": "steam",
        "accepted": ["nan_in_input"],
        "steps": 3,
        "faulty": [[0, 1.5], [2, 2.0]],
        "fixed": [],
        "raised": "",
        "summary": "NeuralDBG: 3 steps",
        "marks": {"engine": {"cause@1": True, "step": False}},
        "cpu_s": {"plain": 1.0, "watched": 1.2},
        "explain_ms": {"engine": 30},
        "unchanged": True,
        "graph_breaks": [1, 1],
        "bare": {"says": "NaN entered.", "same": {"cause": True, "layer": False}},
    }
    other = row | {"architecture": "MLP", "unchanged": False}
    del other["bare"]
    pages = _call(
        "import json, report_dogfood\n"
        f"rows = json.loads({json.dumps([row, other])!r})\n"
        "print(json.dumps([report_dogfood.page({'data': {'rows': [row]}}) for row in rows]))"
    )
    assert isinstance(pages, list)
    compiled, plain = pages
    assert "| torch.compile | `kettle` | `nan_in_input`" in compiled.replace(
        "[`nan_in_input`](causes/nan_in_input.md)", "`nan_in_input`"
    )
    assert "right | not asked | wrong |" in compiled
    assert "**Without `torch.compile`** the same program" in compiled
    assert "The same as with it: cause; not the same: layer." in compiled
    assert "Graph breaks: 1 unwatched, 1 watched." in compiled
    assert "every loss is the same to the last bit" in compiled
    assert "Without `torch.compile`" not in plain
    assert "The losses are not the same" in plain
