# SPDX-License-Identifier: MIT
"""Whether NeuralDBG keeps quiet on runs that learn: healthy programs and fixed twins.

    python benchmarks/bench_quiet.py [PROGRAM_OR_FOLDER ...] [--jobs 2] [--save]
    python benchmarks/bench_quiet.py --public PYTHON --save

Every hypothesis is a false alarm here. Each program runs once; what was recorded is explained
twice, by core alone and with the engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record
from bench_accuracy import EDITIONS, arguments, named, run, version_of


def totals(rows: list[dict[str, Any]]) -> None:
    """Print runs with a false alarm, and false alarms, by edition and kind of program."""
    for edition in EDITIONS:
        for form in ("healthy", "fixed"):
            said = [r["said"][edition] for r in rows if r["form"] == form and edition in r["said"]]
            if said:
                loud = sum(count > 0 for count in said)
                print(f"{edition:6s} {form:8s} {loud}/{len(said)} loud, {sum(said)} false alarms")


def main() -> None:
    """Run what is healthy and print who was told off."""
    args = arguments(__doc__ or "").parse_args()
    # Without its operator an injected pair is a healthy program, which runs anyway.
    names = [name for name in named(args) if "@" not in Path(name).name]
    data = run(args, names, ("fixed",))
    if args.json:
        args.json.write_text(json.dumps(data["rows"], default=str), encoding="utf-8")
    if args.save:
        name = "quiet-public" if args.public else "quiet"
        record.save(name, record.command(), data, **version_of(args.public))
    totals(data["rows"])
    print(f"{data['wall_s']} s with {args.jobs} jobs; {len(data['crashed'])} crashed")


if __name__ == "__main__":
    main()
