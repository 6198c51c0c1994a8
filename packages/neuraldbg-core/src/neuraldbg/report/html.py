# SPDX-License-Identifier: MIT
"""The diagnosis as one HTML page: works offline, is useful without scripts, escapes everything."""

from __future__ import annotations

import base64
import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from neuraldbg.causes import UNKNOWN, words
from neuraldbg.report.aquarium import plain, sentence
from neuraldbg.report.chart import Chart, chart, marks, thinned
from neuraldbg.report.diagnosis import Diagnosis, place, shortened
from neuraldbg.report.graph import causal_graph
from neuraldbg.report.heatmap import Heatmap, heatmaps
from neuraldbg.report.layout import drawing
from neuraldbg.report.picture import STOPS, data_uri, png
from neuraldbg.report.text import distance, event_line, figure, notes
from neuraldbg.schema.keys import failure_key

if TYPE_CHECKING:
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.trace import Series

MOST_EVENTS = 500
MOST_DOTS = 120


class Html:
    """One page with everything in it: loss, heat maps, causal graph, a card per hypothesis."""

    name: ClassVar[str] = "html"
    suffix: ClassVar[str] = ".html"

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the page. It loads nothing, and a policy in its head forbids it to."""
        maps = heatmaps(diagnosis.trace)
        facts = _facts(diagnosis, maps)
        return _template("page.html.j2").render(
            facts,
            css=_asset("page.css"),
            plot_css=_asset("uPlot.min.css"),
            plot_js=_asset("uPlot.iife.min.js"),
            plot_license=_asset("uPlot.LICENSE.txt"),
            js=_asset("page.js"),
            data=_data(diagnosis, maps, facts["chart"]),
        )


def fragment(diagnosis: Diagnosis) -> str:
    """Return a part of a page, for notebooks: cards, loss and graph; no scripts, no heat maps."""
    return _template("fragment.html.j2").render(_facts(diagnosis, []), css=_asset("page.css"))


@dataclass(frozen=True)
class Dot:
    """An event on a heat map, in percent of its width and height."""

    left: float
    top: float
    severity: str
    text: str


@dataclass(frozen=True)
class Picture:
    """A heat map as the page shows it."""

    map: Heatmap
    address: str
    row_px: float
    labels: tuple[tuple[float, str], ...]
    """Top in percent, and the layer's path."""
    ticks: tuple[tuple[float, str], ...]
    """Left in percent, and the step."""
    dots: tuple[Dot, ...]
    low: str
    high: str


def _facts(diagnosis: Diagnosis, maps: list[Heatmap]) -> dict[str, Any]:
    """Return what the templates are filled with."""
    trace = diagnosis.trace
    graph = causal_graph(diagnosis)
    return {
        "diagnosis": diagnosis,
        "trace": trace,
        "chart": chart(trace.loss, trace.events),
        "graph": drawing(graph),
        "left_out": graph.left_out,
        "pictures": [_picture(each, trace.events) for each in maps],
        "gradient": ", ".join(f"rgb{stop}" for stop in STOPS),
        "events": trace.events[:MOST_EVENTS],
        "more_events": max(0, len(trace.events) - MOST_EVENTS),
        "notes": notes(diagnosis),
    }


def _picture(map_: Heatmap, events: tuple[SemanticEvent, ...]) -> Picture:
    rows, columns = map_.levels.shape
    row_px = max(3.0, min(16.0, 640 / rows))
    every = math.ceil(11 / row_px)
    at = {path: index for index, path in enumerate(map_.layers)}
    dots = [
        Dot(
            round(100 * (bisect_right(map_.starts, event.step) - 0.5) / columns, 2),
            round(100 * (at[event.layer] + 0.5) / rows, 2),
            str(event.severity),
            event_line(event),
        )
        for event in events
        if event.layer in at and map_.starts[0] <= event.step <= map_.stops[-1]
    ]
    places = sorted({round((columns - 1) * index / 5) for index in range(6)})
    ends = [10**end if map_.is_log else end for end in (map_.low, map_.high)]
    return Picture(
        map_,
        data_uri(png(map_.levels)),
        row_px,
        tuple(
            (round(100 * (index + 0.5) / rows, 2), path or "(model)")
            for index, path in enumerate(map_.layers)
            if index % every == 0
        ),
        tuple((round(100 * (p + 0.5) / columns, 2), f"{map_.starts[p]:,}") for p in places),
        tuple(dots[:MOST_DOTS]),
        figure(ends[0]),
        figure(ends[1]),
    )


def _data(diagnosis: Diagnosis, maps: list[Heatmap], main: Chart | None) -> str:
    """Return what the script reads, as JSON that is safe inside a `script` element."""
    trace = diagnosis.trace
    data = {
        "curves": [
            *(_curve(name, series) for name, series in trace.losses.items()),
            *(_curve(name, series, is_metric=True) for name, series in trace.metrics.items()),
        ],
        "log": main is not None and main.is_log,
        "events": [
            {"step": mark.step, "severity": mark.severity, "text": mark.text}
            for mark in marks(trace.events, float, -math.inf, math.inf)
        ],
        "maps": [_map_data(each) for each in maps],
    }
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _curve(name: str, series: Series, *, is_metric: bool = False) -> dict[str, Any]:
    points = thinned([int(step) for step in series.steps], [float(v) for v in series.values])
    gapped = [(step, value if math.isfinite(value) else None) for step, value in points]
    return {"name": name, "metric": is_metric, "points": gapped}


def _map_data(map_: Heatmap) -> dict[str, Any]:
    return {
        "layers": map_.layers,
        "starts": map_.starts,
        "stops": map_.stops,
        "low": map_.low,
        "high": map_.high,
        "log": map_.is_log,
        "levels": base64.b64encode(map_.levels.tobytes()).decode("ascii"),
    }


def _asset(name: str) -> str:
    return files("neuraldbg.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("neuraldbg.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "words": words,
        "place": place,
        "sentence": sentence,
        "figure": figure,
        "shortened": shortened,
        "failure_key": failure_key,
        "distance": distance,
        "percent": lambda share: f"{share:.0%}",
    }
    environment.globals["UNKNOWN"] = UNKNOWN
    return environment


def _template(name: str) -> Template:
    return _environment().get_template(name)
