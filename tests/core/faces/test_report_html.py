# SPDX-License-Identifier: MIT
"""The HTML page: one file, offline, useful without scripts, escaped; drawn by a real browser."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from neuraldbg.report.chart import MOST_POINTS, chart, thinned
from neuraldbg.report.graph import causal_graph
from neuraldbg.report.heatmap import MOST_COLUMNS, MOST_ROWS, NONFINITE, heatmaps
from neuraldbg.report.html import Html, fragment
from neuraldbg.report.layout import drawing
from neuraldbg.report.picture import palette, png

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """What a page is made of; refuses tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]
        assert not [name for name, _ in attrs if name.startswith("on")], attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text.append(data)


@pytest.fixture
def page(failed) -> str:
    return Html().render(failed.diagnosis())


def test_page_nests_and_loads_nothing(page):
    assert page.startswith("<!doctype html>")
    assert all(address.startswith("data:") for address in Page(page).addresses)
    assert "default-src 'none'" in page


def test_page_tells_everything_without_scripts(page):
    text = " ".join(" ".join(Page(page).text).split())
    for part in (
        "50 steps, vanishing gradients in 'net.0' from step 28",
        "saturating activations",
        "init too large",
        "87%",
        "use ReLU/GELU",
        "at step 30 in 'net.0': its gradient vanishes",
        "To be sure: replay from step 0",
        "Gradient norm",
        "a flat sigmoid passes no gradient",
        "torch 2.13.0",
    ):
        assert part in text, part
    assert page.count("<polyline") == 1
    assert page.count('<img alt="') >= 3


def test_healthy_page_says_so(healthy):
    text = " ".join(Page(Html().render(healthy.diagnosis())).text)
    assert "No failure found." in text
    assert "Nothing changed its state." in text


def test_empty_run_has_a_page(record):
    text = " ".join(Page(Html().render(record(steps=0).diagnosis())).text)
    assert "No loss was recorded." in text
    assert "No layer was measured." in text


def test_hostile_names_are_escaped(hostile, kit):
    text = Html().render(hostile.diagnosis())
    assert kit.HOSTILE not in text
    page = Page(text)
    assert page.tags.count("script") == 3
    assert any(kit.HOSTILE in part for part in page.text)
    Page(fragment(hostile.diagnosis()))


def test_data_of_the_page_is_strict_json(page):
    text = re.search(r'id="ndbg-data">(.*?)</script>', page, re.DOTALL).group(1)
    assert "<" not in text
    data = json.loads(text, parse_constant=pytest.fail)
    assert [curve["name"] for curve in data["curves"]] == ["loss", "accuracy"]
    assert data["curves"][0]["points"][-1] == [49, None]
    assert len(data["events"]) == 3


def test_page_of_a_long_run_stays_small(record, kit):
    inquiry = record(run=kit.description(60), steps=1200)
    assert len(Html().render(inquiry.diagnosis())) < 700_000


def test_license_of_the_plots_is_in_the_page(page):
    assert "Leon Sorokin" in page


# -- charts and pictures ----------------------------------------------------------------------


def test_loss_that_is_not_finite_breaks_the_line(record):
    losses = {3: math.nan, 6: math.inf}
    drawn = chart(record(steps=10, losses=lambda step: losses.get(step, 1.0)).trace.loss, ())
    assert len(drawn.lines) == 3
    assert len(drawn.breaks) == 2


def test_loss_over_many_orders_is_drawn_on_a_log_scale(record):
    assert chart(record(losses=lambda step: 10.0**-step).trace.loss, ()).is_log
    assert not chart(record(losses=lambda step: 5.0 - step).trace.loss, ()).is_log


@pytest.mark.parametrize("loss", [0.0, math.nan, -1.0, 1e308])
def test_constant_loss_is_drawn(record, loss):
    assert chart(record(losses=lambda _: loss).trace.loss, ()) is not None


def test_thinning_keeps_spikes_gaps_and_ends():
    values = [1.0] * 100_000
    values[777], values[50_001] = 99.0, math.nan
    points = thinned(range(len(values)), values)
    assert len(points) <= 2 * MOST_POINTS
    assert (777, 99.0) in points
    assert [step for step, value in points if math.isnan(value)] == [50_001]
    assert (points[0][0], points[-1][0]) == (0, 99_999)
    assert points == sorted(points)


def test_heat_map_shows_where_it_went_wrong(failed):
    gradient = heatmaps(failed.trace)[0]
    assert gradient.title == "Gradient norm"
    assert gradient.layers == ("net.0", "net.1", "net.2")
    column = gradient.starts.index(28)
    assert gradient.levels[0, column] < gradient.levels[0, column - 1]
    assert gradient.levels[2, column] == NONFINITE
    assert gradient.levels[1, column] == gradient.levels[1, column - 1]
    assert gradient.low == pytest.approx(-9)


def test_heat_map_equals_its_slow_twin(failed):
    flat = next(each for each in heatmaps(failed.trace) if each.title == "Flat region")
    for row, path in enumerate(flat.layers):
        for column, step in enumerate(flat.starts):
            share = 1.0 if path == "net.0" and step >= 28 else 0.1
            assert flat.levels[row, column] == 1 + round(share * 253)


def test_heat_map_is_bounded(record, kit):
    run = kit.description(MOST_ROWS + 40)
    late = kit.event(layer=f"net.{MOST_ROWS + 39}")
    inquiry = record(run=run, steps=MOST_COLUMNS + 7, events=[late])
    for each in heatmaps(inquiry.trace):
        assert each.levels.shape[0] <= MOST_ROWS
        assert each.levels.shape[1] <= MOST_COLUMNS
        assert len(each.starts) == len(each.stops) == each.levels.shape[1]
        assert each.stops[-1] == MOST_COLUMNS + 6
        assert late.layer in each.layers


def test_picture_is_a_png_of_the_levels():
    levels = np.array([[0, 1, 254], [255, 7, 9]], dtype=np.uint8)
    picture = png(levels)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at, parts = 8, {}
    while at < len(picture):
        (size,) = struct.unpack(">I", picture[at : at + 4])
        kind, body = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", picture[at + 8 + size : at + 12 + size])
        assert zlib.crc32(kind + body) == check
        parts[kind] = body
        at += 12 + size
    assert struct.unpack(">II", parts[b"IHDR"][:8]) == (3, 2)
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), dtype=np.uint8).reshape(2, 4)
    assert (rows[:, 1:] == levels).all()
    assert len(parts[b"PLTE"]) == 3 * 256


def test_palette_gets_lighter_all_the_way():
    lightness = palette()[1:255].astype(float) @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(lightness) >= 0).all()


def test_boxes_of_the_graph_do_not_overlap(failed):
    drawn = drawing(causal_graph(failed.diagnosis()))
    for one in drawn.boxes:
        for other in drawn.boxes:
            if one is not other and one.x == other.x:
                assert one.y + one.height <= other.y or other.y + other.height <= one.y
    assert drawing(causal_graph(failed.diagnosis())) == drawn


def test_cycle_of_causes_is_drawn(record, kit):
    chain = kit.hypothesis().causal_chain
    inquiry = record(
        events=[kit.FLAT, kit.GONE, kit.PLATEAU],
        hypotheses=[
            kit.hypothesis(),
            kit.hypothesis(cause="lr_too_high", causal_chain=chain[::-1]),
        ],
    )
    assert len(drawing(causal_graph(inquiry.diagnosis())).boxes) == 5


# -- a real browser ---------------------------------------------------------------------------


@pytest.fixture
def browse(tmp_path):
    """A function that opens a page; returns what scripts made of it, and what they said."""
    if not BROWSER:
        pytest.skip("no chromium on this machine")

    def look(text: str) -> tuple[str, str]:
        place = tmp_path / "page.html"
        place.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [
                BROWSER,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--virtual-time-budget=3000",
                "--enable-logging=stderr",
                "--dump-dom",
                place.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, "\n".join(said)

    return look


def test_browser_draws_the_page_without_complaint(browse, page):
    document, said = browse(page)
    assert said == ""
    assert 'class="loss drawn"' in document
    assert document.count("<canvas") == 1
    assert document.count('<tr class="u-series') == 3


def test_browser_runs_nothing_that_a_name_says(browse, hostile):
    text = Html().render(hostile.diagnosis())
    spy = "<script>window.alert = () => { document.title = 'ran' + 'away'; };</script>"
    document, said = browse(text.replace("<head>", f"<head>{spy}", 1))
    assert "ranaway" not in document
    assert said == ""


def test_browser_shows_a_healthy_and_an_empty_run(browse, healthy, record):
    for inquiry in (healthy, record(steps=0)):
        document, said = browse(Html().render(inquiry.diagnosis()))
        assert said == ""
        assert "No failure found." in document
