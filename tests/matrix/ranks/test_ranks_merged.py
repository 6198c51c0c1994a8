"""The merged traces of two processes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from neuraldbg import load_trace, merge_traces
from neuraldbg.cli import neuraldbg
from neuraldbg.errors import TraceError
from neuraldbg.schema.facts import InputStat, ParameterStat

HEALTHY = ("ddp", "by_hand", "local_steps", "fsdp", "fsdp_clipped")


@pytest.fixture
def merged(folder, tmp_path):
    def merged(name, *, is_reversed=False):
        paths = [folder / f"{name}.ndbg", folder / f"{name}.rank1.ndbg"]
        return merge_traces(paths[::-1] if is_reversed else paths, tmp_path / "merged.ndbg")

    return merged


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_of_two_ranks_is_quiet(merged, name):
    inquiry = merged(name)
    assert inquiry.explain_failure() == [], inquiry.summary()
    assert inquiry.trace.run.ranks == (0, 1)
    assert inquiry.trace.run.warnings == ()
    assert inquiry.trace.step_count == 40


def test_norms_of_shards_add_up_to_those_of_the_twin_that_is_not_sharded(folder, reports, merged):
    trace = merged("fsdp").trace
    names = [parameter.name for parameter in trace.run.parameters]
    twin = reports(folder, "by_hand")[0]["norms"]  # the same weights and data, averaged by hand
    expected = [[step[name] for name in names] for step in twin]
    seen = trace.facts.parameter[:, :, ParameterStat.GRAD_NORM]
    np.testing.assert_allclose(seen, expected, rtol=1e-3)
    assert [p.shard for p in trace.run.parameters] == [(0, 1)] * len(names)


def test_weights_of_shards_are_those_of_the_twin(folder, merged):
    whole, twin = merged("fsdp").trace, load_trace(folder / "by_hand.ndbg").trace
    for one, other in zip(whole.run.parameters, twin.run.parameters, strict=True):
        assert one.initial_rms == pytest.approx(other.initial_rms, rel=1e-5)
    for stat in (ParameterStat.WEIGHT_RMS, ParameterStat.UPDATE_RMS, ParameterStat.WEIGHT_MAX):
        for row, parameter in enumerate(whole.run.parameters):
            if np.prod(parameter.shape) <= 256:  # else both are samples, of other elements
                seen, expected = (t.facts.parameter[:, row, stat] for t in (whole, twin))
                np.testing.assert_allclose(seen, expected, rtol=2e-3)


def test_batches_of_all_ranks_are_combined(folder, merged):
    whole = merged("ddp").trace
    ranks = [load_trace(folder / f"ddp{end}").trace for end in (".ndbg", ".rank1.ndbg")]
    inputs = [trace.facts.inputs[:, 0] for trace in ranks]
    rms = np.sqrt((inputs[0][:, InputStat.RMS] ** 2 + inputs[1][:, InputStat.RMS] ** 2) / 2)
    np.testing.assert_allclose(whole.facts.inputs[:, 0, InputStat.RMS], rms, rtol=1e-5)
    low = np.minimum(inputs[0][:, InputStat.MIN], inputs[1][:, InputStat.MIN])
    np.testing.assert_array_equal(whole.facts.inputs[:, 0, InputStat.MIN], low)
    losses = (ranks[0].loss.values + ranks[1].loss.values) / 2
    np.testing.assert_allclose(whole.loss.values, losses)


@pytest.mark.parametrize(
    ("name", "layer", "step", "words"),
    [
        ("bypassed", None, 0, "called past its DistributedDataParallel wrapper"),
        ("other_seed", None, 0, "start from different weights"),
        ("changed_on_one", "head", 20, "changed them on some ranks"),
        ("other_lr", None, 10, "learning rates differ by 90 %"),
    ],
)
def test_ranks_that_part_are_named_with_layer_and_step_and_reason(merged, name, layer, step, words):
    first = merged(name).explain_failure()[0]
    assert (first.cause, first.layer, first.onset) == ("rank_divergence", layer, step)
    assert first.failure_type == "training_wiring"
    assert words in first.description
    assert first.evidence


@pytest.mark.parametrize("name", ["nan_on_one", "fsdp_nan"])
def test_a_fault_of_one_rank_is_told_with_its_rank(merged, name):
    inquiry = merged(name)
    first = inquiry.explain_failure()[0]
    assert (first.cause, first.onset) == ("nan_in_input", 20)
    assert "Only rank 1 of 2 shows it." in first.description
    ranks = {event.evidence["ranks"] for event in inquiry.events if event.step == 20}
    assert ranks in ({"1", "0-1"}, {"0", "1", "0-1"})


def test_what_no_rank_sees_whole_is_seen_in_the_merged_trace(folder, reports, merged):
    alone = [report["causes"] for report in reports(folder, "fsdp_dead")]
    first = merged("fsdp_dead").explain_failure()[0]
    assert (first.cause, first.layer) == ("init_too_large", "first.0")
    assert [] in alone  # this rank's shards and batches alone do not tell


@pytest.mark.parametrize("name", ["bypassed", "nan_on_one", "fsdp_dead"])
def test_the_diagnosis_does_not_depend_on_the_order_of_the_traces(merged, name):
    one, two = merged(name), merged(name, is_reversed=True)
    assert one.explain_failure() == two.explain_failure()
    assert one.events == two.events
    np.testing.assert_array_equal(one.trace.facts.matrix, two.trace.facts.matrix)


def test_the_command_merges_and_the_others_read_it(folder, tmp_path):
    output = tmp_path / "merged.ndbg"
    traces = [str(folder / "bypassed.ndbg"), str(folder / "bypassed.rank1.ndbg")]
    result = CliRunner().invoke(neuraldbg, ["merge", *traces, "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert "rank divergence" in result.output
    explained = CliRunner().invoke(neuraldbg, ["explain", str(output), "--json", "--exit-code"])
    assert explained.exit_code == 1
    assert json.loads(explained.stdout)["hypotheses"][0]["cause"] == "rank_divergence"
    page = tmp_path / "page.html"
    assert CliRunner().invoke(neuraldbg, ["report", str(output), "-o", str(page)]).exit_code == 0
    assert page.stat().st_size > 1000


def test_what_cannot_be_merged_is_refused_with_the_reason(folder, tmp_path):
    output = tmp_path / "merged.ndbg"
    one, two = folder / "ddp.ndbg", folder / "ddp.rank1.ndbg"
    for paths, target, words in (
        ([one], output, "one trace alone"),
        ([one, one], output, "both of rank 0"),
        ([one, folder / "fsdp.rank1.ndbg"], output, "different models"),
        ([one, two], two, "give another output"),
        ([one, folder / "none.ndbg"], output, "cannot be opened"),
    ):
        with pytest.raises(TraceError, match=words):
            merge_traces(paths, target)
    assert not output.exists()
    merge_traces([one, two], output)
    with pytest.raises(TraceError, match="is a merged trace"):
        merge_traces([output, two], tmp_path / "again.ndbg")
    note = tmp_path / "note.txt"
    note.write_text("mine")
    with pytest.raises(TraceError, match="cannot be written"):
        merge_traces([one, two], note)
    assert note.read_text() == "mine"
