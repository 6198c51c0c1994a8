# SPDX-License-Identifier: MIT
"""How far confidence can be believed: the reliability table and diagram, written into the docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent.parent / "docs" / "engine.md"
BINS = 10
WIDTH, HEIGHT, EDGE = 420, 420, 48


class Bin(NamedTuple):
    """Answers of about the same confidence."""

    count: int
    confidence: float
    """Mean confidence that was stated."""
    right: float
    """Share of them that named an accepted cause."""


def bins(points: list[tuple[float, bool]]) -> list[Bin]:
    """Return the points in ten equally wide bins of confidence; empty bins are left out."""
    parts: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, right in points:
        parts[min(int(confidence * BINS), BINS - 1)].append((confidence, right))
    return [
        Bin(len(p), sum(c for c, _ in p) / len(p), sum(r for _, r in p) / len(p))
        for p in parts
        if p
    ]


def error(points: list[tuple[float, bool]]) -> float:
    """Return the expected calibration error: the mean gap over bins, weighted by their counts.

    After Naeini et al., Obtaining well calibrated probabilities using Bayesian binning (2015).
    """
    total = max(len(points), 1)
    return sum(b.count / total * abs(b.confidence - b.right) for b in bins(points))


def table(points: list[tuple[float, bool]]) -> str:
    """Return the bins as a Markdown table."""
    lines = ["| answers | stated | right |", "|---|---|---|"]
    lines += [f"| {b.count} | {b.confidence:.0%} | {b.right:.0%} |" for b in bins(points)]
    return "\n".join(lines)


def picture(points: list[tuple[float, bool]]) -> str:
    """Return the reliability diagram as SVG: a dot per bin, its area by the number of answers."""
    inner_w, inner_h = WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE

    def at(x: float, y: float) -> tuple[str, str]:
        return f"{EDGE + x * inner_w:.1f}", f"{HEIGHT - EDGE - y * inner_h:.1f}"

    (x0, y0), (x1, y1) = at(0, 0), at(1, 1)
    largest = max((b.count for b in bins(points)), default=1)
    parts = [
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
            'aria-label="Share of right answers over stated confidence" '
            'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12">'
        ),
        (
            f'<rect x="{x0}" y="{y1}" width="{inner_w}" height="{inner_h}" fill="none" '
            'stroke="currentColor" stroke-opacity="0.4"/>'
        ),
        (
            f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="currentColor" '
            'stroke-dasharray="4 4" stroke-opacity="0.6"/>'
        ),
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        (x, below), (left, y) = at(tick, 0), at(0, tick)
        parts += [
            _text(x, float(below) + 18, f"{tick:.0%}"),
            _text(float(left) - 6, float(y) + 4, f"{tick:.0%}", anchor="end"),
        ]
    for one in bins(points):
        x, y = at(one.confidence, one.right)
        radius = 3 + 11 * (one.count / largest) ** 0.5
        said = f"{one.count} answers at {one.confidence:.0%}: {one.right:.0%} right"
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="{radius:.1f}" fill="#2a6fbb" fill-opacity="0.7">'
            f"<title>{said}</title></circle>"
        )
    turned = f' transform="rotate(-90 14 {HEIGHT / 2})"'
    parts += [
        _text(WIDTH / 2, HEIGHT - 8, "stated confidence"),
        _text(14, HEIGHT / 2, "share right", more=turned),
        "</svg>",
    ]
    return "\n".join(parts)


def _text(x: object, y: object, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor"{more}>{words}</text>'


def publish(points: list[tuple[float, bool]]) -> None:
    """Print the error and the table, and write both with the diagram into the page."""
    said = (
        f"{len(points)} answers on programs that were left out when the parameters were fitted; "
        f"expected calibration error {error(points):.3f}."
    )
    print(said)
    print(table(points))
    if not PAGE.exists():
        return
    block = f"{said}\n\n{table(points)}\n\n```{{raw}} html\n{picture(points)}\n```\n"
    marks = r"(<!-- reliability: begin -->\n).*?(<!-- reliability: end -->)"
    text = PAGE.read_text(encoding="utf-8")
    fresh = re.sub(marks, lambda m: f"{m[1]}\n{block}\n{m[2]}", text, flags=re.DOTALL)
    PAGE.write_text(fresh, encoding="utf-8")
