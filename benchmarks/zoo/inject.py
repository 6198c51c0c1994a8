# SPDX-License-Identifier: MIT
"""Put every operator's fault into healthy programs of the zoo; keep the pairs in which it hurts.

    python benchmarks/zoo/inject.py [--operators NAME ...] [--programs NAME ...] [--write] [--again]

Each operator of operators/ is tried on each program of PROGRAMS over three seeds, without
NeuralDBG, and on those that it names in HOSTS; of a program that has a fault of its own, on the
fixed form. A pair counts where the harm shows on every seed: the program did not learn, raised, or
lost at least a quarter of the way that its loss goes without the fault. `--write` stores the pairs
that count, and why the others do not, in injected.toml, and tries no pair that stands there
(`--again` does); `python benchmarks/bench_accuracy.py
benchmarks/zoo/injected.toml` scores them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from check import Silent  # noqa: E402
from pairs import Program, Train, load  # noqa: E402
from seam import NotApplicable, train_with  # noqa: E402

OPERATORS = sorted(p.stem for p in (HERE / "operators").glob("[a-z]*.py"))
PROGRAMS = (
    "healthy_grain_size_bfloat",
    "healthy_survey_half_random_answers",
    "healthy_visitor_count_poisson",
    "healthy_ship_fuel_tonnes",
    "healthy_photon_micro_loss",
    "healthy_harbour_cargo_kilograms",
    "healthy_gear_autoencoder",
    "healthy_bee_dance_batch4",
    "healthy_dial_binary_weights",
    "healthy_kanji_nll",
    "healthy_fish_warm_restarts",
    "healthy_parrot_sum_by_hand",
    "healthy_isotope_safe_where",
    "healthy_flood_damage_huber",
    "healthy_antenna_sparse_units",
    "healthy_plagiarism_bce",
    "healthy_particle_energy_sum",
    "healthy_pedestrian_curriculum",
    "healthy_tide_truncated_history",
    "healthy_ocean_zero_residual",
    "healthy_violin_restarts_conv",
)
"""Quick ones of different make: dense, convolutional, recurrent, with attention; with and without
norms, dropout and clipping; five optimizers; losses of all sizes."""
STORE = HERE / "injected.toml"
SEEDS = (0, 1, 2)
LOST = 0.25
"""Share of the healthy run's fall of the loss whose loss is harm. Heuristic: far above the spread
between seeds, far below what a user would put up with."""


def parts(name: str) -> tuple[str, Path]:
    """Return operator and program file of `operator@program`, with or without folder and `.py`."""
    operator, _, program = name.partition("@")
    path = Path(program if program.endswith(".py") else f"{program}.py")
    return Path(operator).name, path if path.is_file() else HERE / "programs" / path.name


def falls(losses: list[float]) -> tuple[float, float]:
    """Return the mean of the first three losses and of the last tenth."""
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(losses[:3]) / 3, sum(tail) / len(tail)


def sound(program: Program) -> Train:
    """Return the form of a program that has no fault: the fixed one where it has two."""

    def train(watch: Any, *, fixed: bool = True, seed: int = 0, severity: float = 1.0) -> Any:
        return program.train(watch, fixed=fixed, seed=seed, severity=severity)

    return train


def clean_bar(program: Program, seeds: tuple[int, ...] = SEEDS) -> float:
    """Return the last loss above which a run of the program has lost LOST of its fall."""
    train = sound(program)
    pairs = [falls(train(Silent, seed=seed)["loss"]) for seed in seeds]
    start, worst = min(a for a, _ in pairs), max(b for _, b in pairs)
    return worst + LOST * max(start - worst, 0.0)


def hurt(program: Program, result: dict[str, Any], bar: float) -> bool:
    """Say whether a result shows harm: the program's own, or a last loss not finite or too high."""
    last = falls(result["loss"])[1]
    own = program.harmed(result) or not result.get("learned", True)
    return bool(own) or not math.isfinite(last) or last > bar


def injected(name: str) -> Program:
    """Return the pair `operator@program` as a program; truth and bar are injected.toml's."""
    operator_name, path = parts(name)
    stem = path.stem
    entry = tomllib.loads(STORE.read_text(encoding="utf-8"))["pairs"][f"{operator_name}@{stem}"]
    program, operator = load(str(path)), importlib.import_module(f"operators.{operator_name}")
    truth = {"failures": operator.FAILURES, "causes": operator.CAUSES}
    truth |= {"layers": entry["layers"], "onset": entry.get("onset")}

    def train(watch: Any, *, fixed: bool = False, seed: int = 0, severity: float = 1.0) -> Any:
        if fixed:
            return sound(program)(watch, seed=seed)
        return train_with(operator, sound(program), watch, seed=seed, severity=severity)[0]

    def harmed(result: dict[str, Any]) -> bool:
        return hurt(program, result, entry["bar"])

    return Program(f"{operator_name}@{stem}", stem, truth, train, harmed)


def counted(path: Path) -> list[str]:
    """Return the names of the pairs that injected.toml counts."""
    return [f"{name}.py" for name in tomllib.loads(path.read_text(encoding="utf-8"))["pairs"]]


def attempt(job: tuple[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Try operators on one program; return one row per operator."""
    import torch

    torch.set_num_threads(1)
    stem, operators = job
    program, start = load(str(parts(f"@{stem}")[1])), time.process_time()
    stem = program.family
    bar = clean_bar(program)
    rows = []
    for name in operators:
        operator = importlib.import_module(f"operators.{name}")
        row: dict[str, Any] = {"operator": name, "program": stem, "bar": bar, "why": ""}
        for seed in SEEDS:
            try:
                result, truth = train_with(operator, sound(program), Silent, seed=seed)
                row |= {"layers": truth["layers"], "onset": truth["onset"]}
                if not hurt(program, result, bar):
                    row["why"] = f"does not hurt on seed {seed}"
            except NotApplicable as reason:
                row["why"] = str(reason)
            except Exception as error:  # noqa: BLE001 - a crash is a harm, if after the injection
                if "layers" not in row and seed == SEEDS[0]:
                    row["why"] = f"raised {type(error).__name__}: {str(error)[:80]}"
            if row["why"]:
                break
        rows.append(row | {"seconds": time.process_time() - start})
        print(f"{name + '@' + stem:60s} {row['why'] or 'counts'}", flush=True)
    return rows


def stored() -> list[dict[str, Any]]:
    """Return injected.toml's rows, counted and not."""
    if not STORE.is_file():
        return []
    table = tomllib.loads(STORE.read_text(encoding="utf-8"))
    rows = [(name, pair | {"why": ""}) for name, pair in table["pairs"].items()]
    rows += [(name, {"why": why}) for name, why in table["not_counted"].items()]
    return [
        {"layers": [], "onset": None, **row, "operator": name.split("@")[0]}
        | {"program": name.split("@")[1]}
        for name, row in rows
    ]


def pair(row: dict[str, Any]) -> tuple[str, str]:
    """Return a row's operator and program."""
    return row["operator"], row["program"]


def store(rows: list[dict[str, Any]]) -> None:
    """Put rows into injected.toml, over older ones of the same pairs."""
    fresh = {pair(row): row for row in stored() + rows}
    STORE.write_text(written([fresh[key] for key in sorted(fresh)]), encoding="utf-8")


def written(rows: list[dict[str, Any]]) -> str:
    """Return injected.toml's text for rows."""
    lines = ["# Written by `python benchmarks/zoo/inject.py --write`: do not edit.", ""]
    for row in (r for r in rows if not r["why"]):
        lines += [f'[pairs."{row["operator"]}@{row["program"]}"]', f"bar = {row['bar']!r}"]
        lines += [f"layers = {json.dumps(row['layers'])}"]
        lines += [f"onset = {row['onset']!r}"] * (row["onset"] is not None) + [""]
    lines += ["[not_counted]"]
    lines += [
        f'"{row["operator"]}@{row["program"]}" = {json.dumps(row["why"])}'
        for row in rows
        if row["why"]
    ]
    return "\n".join(lines) + "\n"


def asked(operators: list[str], programs: list[str] | None) -> list[tuple[str, str]]:
    """Return the pairs to try: with the programs named, or PROGRAMS and each operator's HOSTS."""
    if programs is not None:
        return [(name, stem) for stem in programs for name in operators]
    modules = {name: importlib.import_module(f"operators.{name}") for name in operators}
    hosts = {name: getattr(module, "HOSTS", ()) for name, module in modules.items()}
    stems = dict.fromkeys([*PROGRAMS, *(stem for more in hosts.values() for stem in more)])
    return [(n, stem) for stem in stems for n in operators if stem in (*PROGRAMS, *hosts[n])]


def main() -> None:
    """Try all pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="+", default=OPERATORS)
    parser.add_argument("--programs", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"store the pairs in {STORE.name}")
    parser.add_argument("--again", action="store_true", help="try what stands there, too")
    args = parser.parse_args()
    wanted = asked(args.operators, args.programs)
    stems = list(dict.fromkeys(stem for _, stem in wanted))
    files = [parts(f"@{name}")[1].resolve() for name in stems]
    if args.write and any(file.parent != HERE.resolve() / "programs" for file in files):
        parser.error("--write stores pairs with the zoo's own programs only")
    known = {} if args.again or not args.write else {pair(row): row for row in stored()}
    left = [one for one in wanted if one not in known]
    jobs = [
        (stem, tuple(name for name, of in left if of == stem))
        for stem in stems
        if any(of == stem for _, of in left)
    ]
    rows = [known[one] for one in wanted if one in known]
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for part in pool.imap_unordered(attempt, jobs):
            rows += part
            if args.write:
                store(part)
    for name in args.operators:
        mine = [row for row in rows if row["operator"] == name]
        print(f"{name:24s} counts on {sum(not r['why'] for r in mine)} of {len(mine)}")


if __name__ == "__main__":
    main()
