# SPDX-License-Identifier: MIT
"""Fit the engine's shared parameters to recorded programs, and score them on programs left out.

    python benchmarks/corpus.py CORPUS                   # records the zoo, once
    python benchmarks/fit_engine.py fit CORPUS           # writes calibration.json and the docs
    python benchmarks/fit_engine.py score CORPUS [MORE]  # core and engine, by program

`fit` looks for the parameters under which the recorded truths are most probable, starting from
the prior guess and held to it by a penalty. It does so once more for each fifth of the programs
with that fifth left out (faulty, fixed and every seed of a program leave together): the confidence
map, the reliability diagram and all printed scores come from those programs only. Folders in MORE
are scored with the parameters of the whole corpus and never fitted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import programs_of
import readings
import record
import reliability
from readings import Run

from neuraldbg_engine.calibration import Calibration
from neuraldbg_engine.causes import Strength, deck
from neuraldbg_engine.inference import Evidence, Network, evidence_of, solve

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent
DATA = ROOT / "packages/neuraldbg-engine/src/neuraldbg_engine/calibration.json"
FOLDS = 5
PASSES = 4
PULL = 2.0
"""Weight of the prior guess: nats per squared logit (or log) away from it, over all runs."""
PSEUDO = 4.0
"""Runs that the common leak stands for against a finding's own count."""

Sample = tuple[Run, tuple[Evidence, ...], tuple[Network, ...]]


def fold(run: Run) -> int:
    """Return the fold in which a run is left out, always the same: its program's file decides.

    Every fault of a file, and what operators put into it, leave together.
    """
    return hashlib.sha256(f"fold {run.family}".encode()).digest()[0] % FOLDS


# -- parameters as numbers without bounds ---------------------------------------------------


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


PROBABILITIES = ("leak", "opinion_seen", "opinion_explained", "first_right", "none")
POSITIVE = ("opinion_direct", "opinion_quiet")
"""What else there is (how strongly findings deny, priors of the unknown, of pairs, of contexts)
stays at the guess: too few programs show it."""


def pack(numbers: Calibration) -> dict[str, float]:
    """Return what is fitted, on a scale on which every value is allowed."""
    values = {name: _logit(getattr(numbers, name)) for name in PROBABILITIES}
    values |= {name: math.log(getattr(numbers, name)) for name in POSITIVE}
    values |= {f"seen {s}": _logit(numbers.seen[s]) for s in Strength}
    first, second = numbers.opinion_ratio
    return values | {"ratio first": first, "ratio second": math.log(second)}


def unpack(values: dict[str, float], base: Calibration) -> Calibration:
    """Return the parameters again; what is not fitted is that of `base`, leaks by finding too."""
    return replace(
        base,
        **{name: _logistic(values[name]) for name in PROBABILITIES},
        **{name: math.exp(values[name]) for name in POSITIVE},
        seen={s: _logistic(values[f"seen {s}"]) for s in Strength},
        opinion_ratio=(values["ratio first"], math.exp(values["ratio second"])),
    )


# -- fitting --------------------------------------------------------------------------------


def leaks(samples: Iterable[Sample], base: Calibration) -> Calibration:
    """Count how often each finding holds where none of its causes is at work."""
    quiet: dict[str, list[float]] = {}
    faulty: dict[str, list[float]] = {}
    producers: dict[str, set[str]] = {}
    for card in deck().values():
        for names in card.speaks_for.values():
            for name in names:
                producers.setdefault(name, set()).add(card.id)
    for run, evidences, _ in samples:
        counts = faulty if run.is_faulty else quiet
        for evidence in evidences:
            for name, causes in producers.items():
                grade = evidence.grade(name)
                if grade is None or (run.is_faulty and causes & set(run.truth["causes"])):
                    continue
                counts.setdefault(name, []).append(grade)
    return replace(base, leaks_quiet=_rates(quiet, base), leaks_faulty=_rates(faulty, base))


def _rates(counts: dict[str, list[float]], base: Calibration) -> dict[str, float]:
    return {
        name: round((math.fsum(grades) + PSEUDO * base.leak) / (len(grades) + PSEUDO), 5)
        for name, grades in sorted(counts.items())
    }


def loss(samples: list[Sample], numbers: Calibration) -> float:
    """Return the mean surprise at the truths, in nats: of the cause, or of nothing being wrong."""
    total = 0.0
    for run, _, networks in samples:
        found = [solve(network, numbers) for network in networks]
        if run.is_faulty:
            chances = [sum(p.causes.get(c, 0.0) for c in run.truth["causes"]) for p in found]
            chance = max(chances, default=0.0)
        else:
            chance = min((p.none for p in found), default=1.0)
        total -= math.log(min(max(chance, 1e-6), 1.0))
    return total / max(len(samples), 1)


def fit(samples: list[Sample], guess: Calibration) -> Calibration:
    """Return the parameters under which the truths are most probable, near the guess."""
    start = pack(guess)
    values, step = dict(start), 0.8

    def cost(values: dict[str, float], base: Calibration) -> float:
        pull = sum((values[name] - start[name]) ** 2 for name in values)
        return loss(samples, unpack(values, base)) + PULL * pull / len(samples)

    for _ in range(PASSES):
        base = leaks(samples, unpack(values, guess))
        best = cost(values, base)
        for name in start:
            for move in (step, -step):
                tried = values | {name: values[name] + move}
                if (now := cost(tried, base)) < best - 1e-6:
                    values, best = tried, now
                    break
        print(f"  {len(samples)} runs: cost {best:.4f}", flush=True)
        step /= 2
    return leaks(samples, unpack(values, guess))


def left_out(samples: list[Sample], guess: Calibration, jobs: int) -> dict[int, Calibration]:
    """Return, for each fold, the parameters fitted without its programs; -1: without none."""
    tasks = [([s for s in samples if fold(s[0]) != number], guess) for number in range(-1, FOLDS)]
    # Forked: the networks are large, and everybody reads the same ones.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        found = pool.starmap(fit, tasks, chunksize=1)
    return dict(zip(range(-1, FOLDS), found, strict=True))


# -- confidence -----------------------------------------------------------------------------


def answers(run: Run, numbers: Calibration) -> list[tuple[float, bool]]:
    """Return (probability of the model, whether it is right) for every hypothesis of a run."""
    plain = replace(numbers, trust=(0.0, 1.0))
    accepted = run.truth["causes"] if run.is_faulty else []
    return [(h.confidence, h.cause in accepted) for h in readings.engine_says(run, plain)]


def trust(points: list[tuple[float, bool]]) -> tuple[float, float]:
    """Return the monotone map from the model's probability to confidence: Platt's, by likelihood.

    With two observations added (one right, one wrong at evens), so that no answer gets 0 or 1.
    """
    first, second = 0.0, 1.0
    data = [(_logit(min(max(p, 1e-6), 1 - 1e-6)), right) for p, right in points]
    data += [(0.0, True), (0.0, False)]
    for _ in range(60):
        g0 = g1 = h00 = h01 = h11 = 0.0
        for x, right in data:
            p = _logistic(first + second * x)
            g0, g1 = g0 + (right - p), g1 + (right - p) * x
            weight = max(p * (1 - p), 1e-9)
            h00, h01, h11 = h00 + weight, h01 + weight * x, h11 + weight * x * x
        det = h00 * h11 - h01 * h01 + 1e-9
        # Steps are bounded: Newton's leap out of sight where the answers are few.
        first += min(max((h11 * g0 - h01 * g1) / det, -0.5), 0.5)
        second = max(second + min(max((h00 * g1 - h01 * g0) / det, -0.2), 0.2), 0.05)
    return round(first, 4), round(second, 4)


def samples_of(folder: Path, jobs: int) -> list[Sample]:
    """Return the recorded runs of a folder with what inference reads of them.

    Programs that are held out are no samples: nothing is fitted to them.
    """
    found = []
    for run in readings.runs(folder, jobs):
        if programs_of.part(run.family) == "held out":
            continue
        evidences = tuple(evidence_of(r.findings, r.first) for r in run.readings)
        found.append((run, evidences, tuple(Network(e, deck()) for e in evidences)))
    return found


def held_out_scores(samples: list[Sample], parameters: dict[int, Calibration]) -> dict[str, Any]:
    """Return rows by run and the points of the reliability diagram, from programs left out."""
    rows, points = [], []
    raw = {
        n: [a for r, _, _ in samples if fold(r) == n for a in answers(r, parameters[n])]
        for n in parameters
    }
    for number, numbers in parameters.items():
        others = [a for n, found in raw.items() if n != number for a in found]
        mapped = replace(numbers, trust=trust(others))
        for run, _, _ in samples:
            if fold(run) != number:
                continue
            said = readings.engine_says(run, mapped)
            rows.append(row_of(run, said))
            accepted = run.truth["causes"] if run.is_faulty else []
            points += [(h.confidence, h.cause in accepted) for h in said]
    pooled = [a for found in raw.values() for a in found]
    return {"rows": rows, "points": points, "trust": trust(pooled)}


def row_of(run: Run, said: list[Any]) -> dict[str, Any]:
    """Return the scores of core and engine on one run."""
    return {
        "run": run,
        "said": said,
        "engine": readings.marks(run, said),
        "core": readings.marks(run, readings.core_says(run)),
    }


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print every run on which something is wrong or the two differ, then the totals."""
    for row in sorted(rows, key=lambda r: (r["run"].program, r["run"].variant)):
        run, engine, core = row["run"], row["engine"], row["core"]
        wrong = [c for c, right in engine.items() if not right]
        if not wrong and engine == core:
            continue
        missed = [c for c, right in core.items() if not right]
        told = ", ".join(f"{h.cause} {h.confidence:.2f}" for h in row["said"][:3]) or "nothing"
        print(f"{run.program}.{run.variant}.{run.seed} ({', '.join(run.truth['causes'])})")
        print(f"    engine misses {wrong}, core misses {missed}; engine says {told}")
    print(f"{title}: core    {readings.totals([r['core'] for r in rows])}")
    print(f"{title}: engine  {readings.totals([r['engine'] for r in rows])}")


def main() -> None:
    """Fit, or score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["fit", "score"])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("more", type=Path, nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    samples = samples_of(args.corpus, args.jobs)
    print(f"{len(samples)} runs of {len({s[0].program for s in samples})} programs")
    if args.command == "fit":
        fitted = left_out(samples, Calibration(), args.jobs)
        whole = fitted.pop(-1)
        held_out = held_out_scores(samples, fitted)
        write(whole, held_out, samples)
        show(held_out["rows"], "left out")
        reliability.publish(held_out["points"])
        save_left_out(held_out["rows"])
    else:
        from neuraldbg_engine.calibration import shipped

        whole = shipped()
        rows = [row_of(run, readings.engine_says(run, whole)) for run, _, _ in samples]
        show(rows, args.corpus.name)
    for folder in args.more:
        rows = [
            row_of(run, readings.engine_says(run, whole))
            for run, _, _ in samples_of(folder, args.jobs)
        ]
        show(rows, folder.name)


def save_left_out(rows: list[dict[str, Any]]) -> None:
    """Write how core and engine do on programs left out of the fit, for docs/benchmarks.md."""
    kept = [
        {
            "program": row["run"].program,
            "variant": row["run"].variant,
            "seed": row["run"].seed,
            "marks": {"core": row["core"], "engine": row["engine"]},
        }
        for row in rows
    ]
    record.save("left-out", record.command(), {"rows": kept})


def write(whole: Calibration, held_out: dict[str, Any], samples: list[Sample]) -> None:
    """Write the data file of the package."""
    programs = sorted({run.program for run, _, _ in samples})
    mark = hashlib.sha256("\n".join(programs).encode()).hexdigest()[:12]
    made_from = f"{len(samples)} runs of {len(programs)} programs of the zoo ({mark})"
    data = replace(whole, trust=held_out["trust"], made_from=made_from).as_dict()
    DATA.write_text(json.dumps(_rounded(data), indent=1) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
