# SPDX-License-Identifier: MIT
"""JSON lines: one record per line, for `grep`, `jq` and log shippers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from neuraldbg.report.aquarium import package, plain

if TYPE_CHECKING:
    from neuraldbg.report.diagnosis import Diagnosis
    from neuraldbg.schema.run import Frozen


class Jsonl:
    """One object per line with a `record` key: run, events, hypotheses, couplings.

    The fields are those of the Aquarium package; the loss is not included.
    """

    name: ClassVar[str] = "jsonl"
    suffix: ClassVar[str] = ".jsonl"

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the lines, the run's first, each with a newline at its end."""
        whole = package(diagnosis)
        records: list[tuple[str, Frozen]] = [("run", whole.run)]
        records += [("event", each) for each in whole.events]
        records += [("hypothesis", each) for each in whole.hypotheses]
        records += [("coupling", each) for each in whole.couplings]
        return "".join(
            json.dumps(
                {"record": name, "schema_version": whole.schema_version, **plain(record)},
                ensure_ascii=False,
                allow_nan=False,
            )
            + "\n"
            for name, record in records
        )
