// SPDX-License-Identifier: MIT
// Adds to a page that works without it: zooming and values under the pointer.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("ndbg-data").textContent);
  const ink = (name) =>
    getComputedStyle(document.querySelector(".ndbg")).getPropertyValue(name).trim();
  const shown = (value) => (value == null ? "--" : Number(value.toPrecision(4)).toString());

  function drawLoss() {
    const place = document.getElementById("ndbg-loss");
    if (!place || !data.curves.length) return;
    const steps = [...new Set(data.curves.flatMap((c) => c.points.map((p) => p[0])))];
    steps.sort((a, b) => a - b);
    const at = new Map(steps.map((step, index) => [step, index]));
    const columns = data.curves.map((curve) => {
      const column = new Array(steps.length).fill(undefined);
      for (const [step, value] of curve.points) column[at.get(step)] = value;
      return column;
    });
    const losses = columns.filter((_, index) => !data.curves[index].metric).flat();
    const hasMetrics = data.curves.some((curve) => curve.metric);
    const isLog = data.log && losses.every((value) => value == null || value > 0);
    const broken = data.curves[0].points.filter((p) => p[1] === null).map((p) => p[0]);
    const colours = [ink("--accent"), "#b5651d", "#2a8c6e", "#8a4fa3", "#7a7a2c", "#b04a6d"];
    const readout = document.getElementById("ndbg-loss-readout");

    const drawEvents = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      for (const event of data.events) {
        const x = Math.round(plot.valToPos(event.step, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.strokeStyle = ctx.fillStyle = ink(`--${event.severity}`);
        ctx.globalAlpha = 0.55;
        ctx.setLineDash([4, 3]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.globalAlpha = 1;
        ctx.beginPath();
        ctx.arc(x, bbox.top + 5, 5, 0, 2 * Math.PI);
        ctx.fill();
      }
      ctx.fillStyle = ink("--critical");
      ctx.font = "16px sans-serif";
      ctx.textAlign = "center";
      for (const step of broken) {
        ctx.fillText("\u00d7", plot.valToPos(step, "x", true), bbox.top + bbox.height - 4);
      }
      ctx.restore();
    };
    const tell = (plot) => {
      const { left } = plot.cursor;
      if (left == null || left < 0) return void (readout.textContent = "");
      const near = data.events
        .map((event) => [Math.abs(plot.valToPos(event.step, "x") - left), event])
        .filter(([distance]) => distance < 6)
        .map(([, event]) => event.text);
      readout.textContent = near.slice(0, 3).join(" | ");
    };
    const axis = { stroke: ink("--faint"), grid: { stroke: ink("--line"), width: 1 } };
    const labels = (_, ticks) => ticks.map((tick) => (tick == null ? "" : shown(tick)));
    const figure = place.closest("figure");
    const plot = new uPlot(
      {
        width: Math.max(320, figure.clientWidth),
        height: 280,
        scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 }, metric: {} },
        axes: [
          axis,
          { ...axis, size: 70, values: labels },
          { ...axis, size: 60, values: labels, scale: "metric", side: 1, show: hasMetrics, grid: { show: false } },
        ],
        series: [
          { label: "step" },
          ...data.curves.map((curve, index) => ({
            label: curve.name,
            scale: curve.metric ? "metric" : "y",
            dash: curve.metric ? [6, 3] : undefined,
            stroke: colours[index % colours.length],
            width: 1.5,
            spanGaps: false,
            value: (_, value) => shown(value),
          })),
        ],
        hooks: { draw: [drawEvents], setCursor: [tell] },
      },
      [steps, ...columns],
      place,
    );
    figure.classList.add("drawn");
    new ResizeObserver(() => {
      const width = Math.max(320, figure.clientWidth);
      if (Math.abs(width - plot.width) > 1) plot.setSize({ width, height: 280 });
    }).observe(figure);
  }

  function readMaps() {
    for (const place of document.querySelectorAll(".map")) {
      const map = data.maps[Number(place.dataset.map)];
      const levels = Uint8Array.from(atob(map.levels), (char) => char.charCodeAt(0));
      const readout = place.closest("details").querySelector(".readout");
      place.addEventListener("pointermove", (event) => {
        const box = place.getBoundingClientRect();
        const columns = map.starts.length;
        const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
        const row = Math.floor(((event.clientY - box.top) / box.height) * map.layers.length);
        if (column < 0 || row < 0 || column >= columns || row >= map.layers.length) return;
        const level = levels[row * columns + column];
        const place_ = map.low + ((level - 1) / 253) * (map.high - map.low || 1);
        const value = map.log ? 10 ** place_ : place_;
        const said = level === 0 ? "not measured" : level === 255 ? "not finite" : `about ${Number(value.toPrecision(3))}`;
        const [start, stop] = [map.starts[column], map.stops[column]];
        const steps = start === stop ? `step ${start}` : `steps ${start} to ${stop}`;
        readout.textContent = `${map.layers[row] || "(model)"}, ${steps}: ${said}`;
      });
      place.addEventListener("pointerleave", () => (readout.textContent = ""));
    }
  }

  drawLoss();
  readMaps();
})();
