# SPDX-License-Identifier: MIT
"""A long, wide trace is explained in seconds: rows of a trace do not grow with its steps."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from neuraldbg.trace import open_trace
from neuraldbg_engine.explain import explain
from neuraldbg_engine.findings import Case, all_findings

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench_explain.py"
_spec = importlib.util.spec_from_file_location("bench_explain", BENCH)
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

GENEROUS = 4 * bench.SECONDS
"""CPU seconds: the benchmark measures, this only catches what became slow by a factor."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """6,000 steps of 200 layers: as many rows as 100,000 steps leave."""
    path = tmp_path_factory.mktemp("wide") / "wide.ndbg"
    bench.write(path, 6_000, 200)
    return path


@pytest.mark.slow
def test_wide_trace_is_explained_in_seconds(wide):
    start = time.process_time()
    trace = open_trace(wide)
    found = explain(trace)
    took = time.process_time() - start
    assert found
    assert 1_000 < len(trace.facts) < 2_500
    assert took < GENEROUS


@pytest.mark.slow
def test_no_single_finding_takes_a_tenth_of_the_time(wide):
    case = Case(open_trace(wide))
    all_findings(case)  # what findings share is read once
    start = time.process_time()
    all_findings(case)
    assert time.process_time() - start < bench.SECONDS
