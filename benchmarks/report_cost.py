# SPDX-License-Identifier: MIT
"""The cost section of docs/benchmarks.md, and README's block of it."""

from __future__ import annotations

from typing import Any

from tables import NONE, paragraphs, table

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
}


def cost(document: dict[str, Any]) -> str:
    """Return the section on what watching costs."""
    data = document["data"]
    models = [name for name in MODELS if name in data["models"]]
    steps = [(f"`{m}`", MODELS[m], f"{data['models'][m]['plain_ms']:.2f}") for m in models]
    return paragraphs(
        "## Cost",
        "Each tool trains a copy of its own, in a process of its own; the processes take turns of "
        "a few steps, one at a time.\n"
        f"The figure is the median over {data['rounds']} rounds of CPU time per step, divided by "
        "that of the plain loop in the same round, on one thread.\n"
        "`wandb.watch(model)` looks at gradients once in 1,000 steps, with `log_freq=1` on every "
        "one; CPU time of its background process is not counted.\n"
        "TorchLens' checks are change, update ratio, magnitude and non-finite gradients.",
        _by_model("ratio", data, models, lambda ratio: f"{ratio:.3f}"),
        table(("model", "what it is", "ms per plain step"), steps),
        "### Host reads",
        "How often per step the tool reads a tensor on the host (`item`, `tolist`, `numpy`, `cpu`, "
        "`bool`, `float`, `int`), beyond the loop's own.\n"
        "On an accelerator each of these may wait for the device.\n"
        "They are counted on the CPU; no GPU was at hand.",
        _by_model("added_reads", data, models, lambda reads: f"{reads:.0f}"),
        "### Memory",
        _memory(data["memory"]),
    )


def _by_model(key: str, data: dict[str, Any], models: list[str], show: Any) -> str:
    lines = []
    for tool, name in TOOLS.items():
        figures = [data["models"][model][key].get(tool) for model in models]
        if any(figure is not None for figure in figures):
            lines.append((name, *(NONE if f is None else show(f) for f in figures)))
    return table(("tool", *(f"`{model}`" for model in models)), lines)


def _memory(data: dict[str, Any]) -> str:
    first, last = data["steps"]
    lines = [(TOOLS.get(t, "plain"), f"{mb:+.2f}") for t, mb in data["mb"].items()]
    long = data["long"]
    return paragraphs(
        f"Growth of the process's resident set from step {first:,} to step {last:,} of `tiny`.",
        table(("tool", "MB"), lines),
        f"NeuralDBG from step {long['steps'][0]:,} to step {long['steps'][1]:,}, less the plain "
        f"loop's own growth: {long['mb']:+.2f} MB.",
    )


def explain(document: dict[str, Any]) -> str:
    """Return the sentence on how long the longest trace takes to explain."""
    data = document["data"]["explain"]
    seconds = ", ".join(f"{value:.2f} s ({name})" for name, value in data["seconds"].items())
    return (
        f"A trace file of {data['steps']:,} steps and {data['layers']} layers "
        f"({data['file_mb']} MB), opened and explained, in CPU time: {seconds}."
    )


def readme_block(document: dict[str, Any]) -> str:
    """Return README's table: ours and its control on every model."""
    data = document["data"]["models"]
    lines = []
    for model in MODELS:
        if model in data:
            ratio = data[model]["ratio"]
            plain = f"{data[model]['plain_ms']:.2f}"
            lines.append((model, f"{ratio['ours']:.3f}", f"{ratio['control']:.3f}", plain))
    return table(("model", "watched / plain", "plain / plain", "ms per plain step"), lines)
