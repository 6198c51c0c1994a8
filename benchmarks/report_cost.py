# SPDX-License-Identifier: MIT
"""The cost section of docs/benchmarks.md, and README's block of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report_accuracy import EDITION
from tables import NONE, paragraphs, table

if TYPE_CHECKING:
    from collections.abc import Iterable

ONCE = ("wandb-all", "torchlens-trace")
"""Tools that bench_beside.py measures in its first set only."""
TOOLS = {
    "control": "plain again (control: noise)",
    "ours": "NeuralDBG, defaults",
    "anomaly": "`torch.autograd.set_detect_anomaly(True)`",
    "wandb": "`wandb.watch(model)`, offline",
    "wandb-all": '`wandb.watch(model, log="all", log_freq=1)`, offline',
    "torchlens-checks": "TorchLens, training checks",
    "torchlens-trace": "TorchLens, one traced forward per step",
    "public": "neuraldbg 1.3.2",
}
MODELS = {
    "mlp": "784-1024-1024-10, batch 256, Adam",
    "cnn": "residual net of width 32, 32x32 pictures, batch 32, SGD",
    "gpt": "4 blocks of width 128, 128 tokens, batch 8, AdamW and clipping",
    "tiny": "8-32-32-1, batch 32, SGD",
    "small": "32-64-64-10, batch 128, Adam",
    "medium": "64-192-192-10, batch 128, Adam",
    "gpt2": "GPT-2 small, untied, bfloat16: 12 blocks of width 768, 1,024 tokens, batch 8, AdamW",
}


def cost(document: dict[str, Any]) -> str:
    """Return the section on what watching costs."""
    data = document["data"]
    models = [name for name in MODELS if name in data["models"]]
    return paragraphs(
        "## Cost",
        "Each tool trains a copy of its own, in a process of its own; the processes take turns of "
        "half a second of plain steps, one at a time, all at the same training step.\n"
        "A ratio is CPU time per step divided by that of the plain loop in the same round, on one "
        f"thread; the figure is the median over {data['sets']} sets of fresh processes of the "
        f"median over {data['rounds']} rounds of a set, and the quartiles of all rounds stand "
        "behind it.\n"
        "Tools that multiply the time of a step are in the first set only: "
        f"{_named(ONCE)}.\n"
        "The first 64 steps and the first quarter of a second of watching by NeuralDBG are free by "
        "design, and not counted.\n"
        "`wandb.watch(model)` looks at gradients once in 1,000 steps, with `log_freq=1` on every "
        "one; CPU time of its background process is not counted.\n"
        "TorchLens' checks are change, update ratio, magnitude and non-finite gradients.",
        _by_model(data, models, _ratio),
        _models(data, models),
        "### Host reads",
        "How often per step the tool reads a tensor on the host (`item`, `tolist`, `numpy`, `cpu`, "
        "`bool`, `float`, `int`), beyond the loop's own.\n"
        "On an accelerator each of these may wait for the device.",
        _by_model(data, models, lambda found, tool: f"{found['added_reads'][tool]:.1f}"),
        "### Memory beside other tools",
        _memory_beside(data["memory"]),
    )


def accelerator(document: dict[str, Any]) -> str:
    """Return the section on what watching costs on an accelerator."""
    data = document["data"]
    models = [name for name in MODELS if name in data["models"]]
    return paragraphs(
        "### On an accelerator",
        f"The same on {data['device']}: wall time per step over {data['sets']} sets of "
        f"{data['rounds']} rounds, the device's queue emptied before and after each turn.",
        _by_model(data, models, _ratio),
        _models(data, models),
        "Host reads per step beyond the loop's own:",
        _by_model(data, models, lambda found, tool: f"{found['added_reads'][tool]:.1f}"),
    )


def _named(tools: Iterable[str]) -> str:
    return " and ".join(TOOLS[tool] for tool in tools)


def _models(data: dict[str, Any], models: list[str]) -> str:
    lines = [(f"`{m}`", MODELS[m], f"{data['models'][m]['plain_ms']:.2f}") for m in models]
    return table(("model", "what it is", "ms per plain step"), lines)


def _ratio(found: dict[str, Any], tool: str) -> str:
    return _spread(found["ratio"][tool], *found["quartiles"][tool])


def _spread(ratio: float, low: float, high: float) -> str:
    """Return a median with its quartiles."""
    return f"{ratio:.3f} ({low:.3f} to {high:.3f})"


def _by_model(data: dict[str, Any], models: list[str], show: Any) -> str:
    lines = []
    for tool, name in TOOLS.items():
        found = [data["models"][model] for model in models]
        if any(tool in one["ratio"] for one in found):
            cells = (show(one, tool) if tool in one["ratio"] else NONE for one in found)
            lines.append((name, *cells))
    return table(("tool", *(f"`{model}`" for model in models)), lines)


def _memory_beside(data: dict[str, Any]) -> str:
    first, last = data["steps"]
    lines = [(TOOLS.get(t, "plain"), f"{mb:+.2f}") for t, mb in data["mb"].items()]
    return paragraphs(
        f"Growth of the process's resident set from step {first:,} to step {last:,} of `tiny`.",
        table(("tool", "MB"), lines),
    )


def alone(document: dict[str, Any]) -> str:
    """Return the section on NeuralDBG alone, on one thread and on more."""
    lines = [
        (
            f"`{row['model']}`",
            row["threads"],
            *_cells(row),
        )
        for row in document["data"]["rows"]
    ]
    head = ("model", "threads", "watched / plain", "plain / plain", "ms per plain step")
    return paragraphs(
        "### NeuralDBG alone",
        "Watched and plain, three processes taking turns; CPU time of all threads.",
        table(head, lines),
    )


def memory(document: dict[str, Any]) -> str:
    """Return the section on memory over a long run."""
    data, where = document["data"], "memory"
    if data["in_file"]:
        where = "a file"
    lines = [
        (name, f"{data['settled']:,} to {data[key]['steps']:,}", f"{data[key]['mb']:+.2f}")
        for key, name in (("ours", f"NeuralDBG, trace in {where}"), ("plain", "plain"))
    ]
    return paragraphs(
        "### Memory over steps",
        "Growth of the resident set while a small network trains on and on.",
        table(("loop", "steps", "MB"), lines),
    )


def explain(document: dict[str, Any]) -> str:
    """Return how long the longest trace takes to explain."""
    data = document["data"]
    lines = [
        (
            EDITION[edition],
            f"{one['load_seconds']:.2f}",
            f"{one['seconds'] - one['load_seconds']:.2f}",
            f"{one['seconds']:.2f}",
            f"{one['cpu_seconds']:.2f}",
            f"{one['peak_mb']:.0f}",
        )
        for edition, one in data["editions"].items()
    ]
    head = ("edition", "s to open", "s to explain", "s in all", "CPU s", "peak MB")
    return paragraphs(
        f"A trace file of {data['steps']:,} steps and {data['layers']} layers "
        f"({data['file_mb']:.0f} MB), opened and explained in a fresh process, torch not loaded:",
        table(head, lines),
    )


def readme_block(document: dict[str, Any]) -> str:
    """Return README's table: ours and its control on every model, and what made it."""
    data, lines = document["data"], []
    models = {m: data["models"][m] for m in MODELS if m in data["models"]}
    for model, found in models.items():
        if "ours" in found["ratio"]:
            plain, control = f"{found['plain_ms']:.2f}", f"{found['ratio']['control']:.3f}"
            lines.append((f"`{model}`", _ratio(found, "ours"), control, plain))
    return _readme(document, lines, list(models), f"{data['sets']} sets of {data['rounds']} rounds")


def readme_block_alone(document: dict[str, Any]) -> str:
    """Return the same from a run of NeuralDBG alone, on one thread."""
    rows = {row["model"]: row for row in document["data"]["rows"] if row["threads"] == 1}
    models = [model for model in MODELS if model in rows]
    lines = [(f"`{model}`", *_cells(rows[model])) for model in models]
    rounds = max(row["rounds"] for row in rows.values())
    return _readme(document, lines, models, f"{rounds} rounds")


def _cells(row: dict[str, Any]) -> tuple[str, str, str]:
    ratio = _spread(row["ratio"], row["low"], row["high"])
    return ratio, f"{row['control']:.3f}", f"{row['ms_per_step']:.2f}"


def _readme(
    document: dict[str, Any], lines: list[tuple[str, ...]], models: list[str], rounds: str
) -> str:
    kind = document["machine"]
    return paragraphs(
        table(("model", "watched / plain", "plain / plain", "ms per plain step"), lines),
        f"`watched / plain` is the ratio of CPU time per step, median (and quartiles) of {rounds}; "
        "`plain / plain` is a control, and its distance from 1 is noise.\n"
        f"Measured on {document['date']} by `{document['command']}` with torch "
        f"{document['versions']['torch']} on one thread of a machine of {kind['cores']} cores "
        f"({kind['processor']}).\n"
        + "; ".join(f"`{model}` is {MODELS[model]}" for model in models)
        + ".",
    )
