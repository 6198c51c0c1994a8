# SPDX-License-Identifier: MIT
"""The built-in commands. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuraldbg import __version__
from neuraldbg.cli.group import Commands

if TYPE_CHECKING:
    from rich.console import Console

    from neuraldbg.inquiry import Inquiry
    from neuraldbg.schema.hypotheses import CausalHypothesis

TRACE = click.argument("trace", type=click.Path(path_type=Path))
JSON = click.option("--json", "is_json", is_flag=True, help="Print strict JSON.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="neuraldbg")
def neuraldbg() -> None:
    """Say why a PyTorch training run failed, from the trace that it left.

    A trace is the file that NeuralDbg(model, trace="run.ndbg") writes. None of these commands
    needs torch.
    """


@neuraldbg.command()
@TRACE
@click.option("--failure", metavar="NAME", help="Failure type, event type, state or cause.")
@JSON
@click.option("--exit-code", is_flag=True, help="Exit with 1 where a failure was found.")
def explain(trace: Path, failure: str | None, *, is_json: bool, exit_code: bool) -> None:
    """Print the likely causes of what went wrong, most probable first."""
    inquiry = _load(trace)
    hypotheses = inquiry.explain_failure(failure)
    if is_json:
        _print_json(inquiry, hypotheses)
    else:
        from neuraldbg.report.text import print_diagnosis

        print_diagnosis(inquiry.diagnosis(), _console(), hypotheses)
        if failure and not hypotheses and inquiry.get_causal_hypotheses():
            click.echo(f"\nNone of what was found is about {failure!r}; ask without --failure.")
    if exit_code and hypotheses:
        sys.exit(1)


@neuraldbg.command()
@TRACE
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="The page to write; default: beside the trace, ending in .html.")  # fmt: skip
def report(trace: Path, output: Path | None) -> None:
    """Write one HTML page that works offline."""
    inquiry = _load(trace)
    click.echo(inquiry.report(output or trace.with_suffix(".html")))


@neuraldbg.command()
@TRACE
@click.option("--format", "format_", metavar="NAME", default="aquarium", show_default=True,
              help="aquarium, html, jsonl, mermaid, text, or a format of a plugin.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
              default="-", help="The file to write; default: standard output.")  # fmt: skip
def export(trace: Path, format_: str, output: Path) -> None:
    """Write the diagnosis in the format of another program."""
    from neuraldbg.causes import unknown_name

    inquiry = _load(trace)
    formats = {reporter.name: reporter for reporter in inquiry.host.reporters()}
    if format_ not in formats:
        raise unknown_name("format", format_, formats)
    document = formats[format_]().render(inquiry.diagnosis())
    if str(output) == "-":
        click.echo(document, nl=False)
    else:
        output.write_text(document, encoding="utf-8", newline="\n")


@neuraldbg.command()
@TRACE
@click.option("--interval", default=1.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(min=0.05), help="Time between two looks.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the present state, and exit.")
def watch(trace: Path, interval: float, *, once: bool) -> None:
    """Follow a run while it trains; ends with the run, or on Ctrl-C."""
    from neuraldbg.cli.watch import follow

    follow(_load(trace), _console(), interval, is_once=once)


@neuraldbg.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False),
              help="The trace to write.")  # fmt: skip
def merge(traces: tuple[Path, ...], output: Path) -> None:
    """Join the traces of the ranks of one run into one trace."""
    from neuraldbg.inquiry import merge_traces

    inquiry = merge_traces(traces, output)
    click.echo(f"{output}: {inquiry!r}")


@neuraldbg.command()
@JSON
def plugins(*, is_json: bool) -> None:
    """List the plugins that were found, and what became of them."""
    from neuraldbg.cli.doctor import plugin_lines
    from neuraldbg.plugins import PluginHost
    from neuraldbg.report.aquarium import strict_json

    found = PluginHost().describe()
    if is_json:
        click.echo(strict_json({"plugins": [each._asdict() for each in found]}), nl=False)
        return
    for line in plugin_lines(found):
        click.echo(line)


@neuraldbg.command()
@JSON
def doctor(*, is_json: bool) -> None:
    """Check this installation: versions, plugins, and hooks that torch holds."""
    from neuraldbg.cli.doctor import examine
    from neuraldbg.report.aquarium import strict_json

    findings = examine()
    if is_json:
        click.echo(strict_json(findings.as_dict()), nl=False)
    else:
        for line in findings.lines():
            click.echo(line)
    if findings.problems:
        sys.exit(1)


def _load(trace: Path) -> Inquiry:
    from neuraldbg.errors import TraceError
    from neuraldbg.inquiry import load_trace

    try:
        inquiry = load_trace(trace)
    except TraceError as error:
        message = str(error)
        raise TraceError(message if str(trace) in message else f"{trace}: {message}") from error
    for problem in inquiry.trace.problems:
        click.echo(f"Warning: {trace} is damaged: {problem}", err=True)
    return inquiry


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def _print_json(inquiry: Inquiry, hypotheses: list[CausalHypothesis]) -> None:
    from neuraldbg.report.aquarium import SCHEMA_VERSION, package, strict_json
    from neuraldbg.report.aquarium import hypothesis_record as record

    whole = package(inquiry.diagnosis())
    chosen = [record(each) for each in hypotheses]
    cited = {name for each in chosen for name in (*each.evidence, *each.counter_evidence)}
    cited |= {link.event for each in chosen for link in each.links if link.event}
    answer = {
        "schema_version": SCHEMA_VERSION,
        "run": whole.run,
        "hypotheses": chosen,
        "events": [event for event in whole.events if event.id in cited],
    }
    click.echo(strict_json(answer), nl=False)
