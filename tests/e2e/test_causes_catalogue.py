"""Every cause has a page and a pair of programs: one that has the fault, one that has not."""

from __future__ import annotations

import ast
import importlib.util
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neuraldbg.causes import vocabulary
from neuraldbg.detectors import neuraldbg_detectors
from neuraldbg.reasoning.causes import MODULES
from neuraldbg.reasoning.kinds import KINDS

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def _catalogue() -> ModuleType:
    spec = importlib.util.spec_from_file_location("catalogue", DOCS / "catalogue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CATALOGUE = _catalogue()
ALL = sorted(vocabulary().causes)
UNSEEN = CATALOGUE.notes()["unseen"]
ACCEPTED = CATALOGUE.notes()["accepted"]
KNOWN_GAPS = CATALOGUE.notes()["known_gaps"]
PAIRS = [cause for cause in ALL if cause not in UNSEEN]
NAMED = [cause for cause in PAIRS if cause not in KNOWN_GAPS["bad"]]
QUIET = [cause for cause in PAIRS if cause not in KNOWN_GAPS["good"]]
OWN = sorted(path.parent.name for path in (DOCS / "detectors").glob("*/bad.py"))
FOLDERS = [
    *(DOCS / "causes" / cause for cause in PAIRS),
    *(DOCS / "detectors" / name for name in OWN),
]
MOST_LINES = 45
NO_FLOOR = {
    "discriminator_overpowers": "two nets against each other: no loss of either falls for good",
    "mode_collapse": "the same",
    "policy_collapse": "the loss of a policy gradient is no error: it starts and ends near zero",
    "resume_without_optimizer_state": "it resumes at the floor, and stays there",
}
"""Good programs whose loss does not tell that they train."""


def _program(cause: str, name: str) -> Path:
    return DOCS / "causes" / cause / name


def test_every_cause_has_a_pair_or_a_reason_for_none() -> None:
    found = {path.parent.name for path in (DOCS / "causes").glob("*/*.py")}
    assert found == set(PAIRS)
    assert not [cause for cause in PAIRS if not _program(cause, "good.py").is_file()]


def test_no_cause_that_a_rule_is_named_after_is_called_unseen() -> None:
    ruled = set(MODULES) | {known.cause for known in KINDS.values()}
    assert not ruled & set(UNSEEN)


def test_notes_name_causes_of_the_vocabulary_and_each_once() -> None:
    assert KNOWN_GAPS.keys() == {"bad", "good"}
    tables = (UNSEEN, ACCEPTED, KNOWN_GAPS["bad"])
    noted = [cause for table in tables for cause in table]
    assert {*noted, *KNOWN_GAPS["good"]} <= set(ALL)
    assert len(noted) == len(set(noted))


def test_pages_are_those_that_the_generator_writes() -> None:
    pages = CATALOGUE.pages()
    folders = (DOCS / "causes", DOCS / "detectors")
    assert {path for folder in folders for path in folder.glob("*.md")} == set(pages)
    stale = [path.name for path, text in pages.items() if path.read_text("utf-8") != text]
    assert not stale, "run `python docs/catalogue.py --pages`"


def test_every_detector_has_a_page() -> None:
    assert {f"{detector.name}.md" for detector in neuraldbg_detectors()} <= {
        path.name for path in (DOCS / "detectors").glob("*.md")
    }


def test_every_detector_has_programs_of_its_own_or_those_of_a_cause() -> None:
    cited = {name for names in CATALOGUE.evidence().values() for name in names}
    assert {detector.name for detector in neuraldbg_detectors()} == cited | set(OWN)
    assert not cited & set(OWN)
    assert not [name for name in OWN if not (DOCS / "detectors" / name / "good.py").is_file()]


@pytest.mark.parametrize("name", OWN)
def test_programs_of_a_detector_set_it_off_and_do_not(name: str) -> None:
    folder = DOCS / "detectors" / name
    told = CATALOGUE.events_of(name, CATALOGUE.session(folder / "bad.py"))
    assert told == (folder / "says.txt").read_text("utf-8").splitlines() != []
    dbg = CATALOGUE.session(folder / "good.py")
    assert CATALOGUE.events_of(name, dbg) == []
    assert dbg.explain_failure() == [], dbg.summary()
    losses = dbg.loss_history
    assert statistics.median(losses[-15:]) < 0.75 * statistics.median(losses[:3])


@pytest.mark.parametrize(
    "program",
    [folder / name for folder in FOLDERS for name in ("bad.py", "good.py")],
    ids=lambda program: f"{program.parent.name}-{program.name}",
)
def test_program_is_short_and_uses_the_public_face_alone(program: Path) -> None:
    text = program.read_text("utf-8")
    tree = ast.parse(text)
    code = text.splitlines()[tree.body[1].lineno - 1 :]
    assert len(code) <= MOST_LINES
    ours = [
        (node.module, [alias.name for alias in node.names])
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "neuraldbg" in (node.module or "")
    ]
    assert ours == [("neuraldbg", ["NeuralDbg"])]


@pytest.mark.parametrize("cause", NAMED)
def test_bad_program_is_named_first(cause: str) -> None:
    dbg = CATALOGUE.session(_program(cause, "bad.py"))
    found = dbg.explain_failure()
    assert found, f"nothing was found: {dbg.summary()}"
    accepted = {cause, ACCEPTED.get(cause, {"cause": cause})["cause"]}
    assert found[0].cause in accepted, dbg.summary()
    assert cause in [hypothesis.cause for hypothesis in found]
    assert set(CATALOGUE.evidence()[cause]) <= {event.detector for event in dbg.events}


@pytest.mark.parametrize("cause", QUIET)
def test_good_program_trains_and_nothing_is_said_of_it(cause: str) -> None:
    dbg = CATALOGUE.session(_program(cause, "good.py"))
    assert dbg.explain_failure() == [], dbg.summary()
    assert dbg.trace.run.warnings == ()
    losses = dbg.loss_history
    assert all(math.isfinite(loss) for loss in losses)
    if cause not in NO_FLOOR:
        tenth = max(3, len(losses) // 10)
        assert statistics.median(losses[-tenth:]) < 0.7 * statistics.median(losses[:3])


@pytest.mark.parametrize("cause", PAIRS)
def test_page_shows_what_was_said_of_the_bad_program(cause: str) -> None:
    said = _program(cause, "says.txt").read_text("utf-8")
    assert said.startswith("NeuralDBG: ")
    title = cause.replace("_", " ").lower()
    if cause in NAMED and cause not in ACCEPTED:
        assert title in said.splitlines()[0].lower()
