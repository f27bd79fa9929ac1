// What pages gain with JavaScript: charts with axes, stars, copying, parts that refresh, and a pause.
"use strict";
(() => {
  const STARS = "logfleet-stars";
  let paused = false;

  function shortened(value, unit) {
    const step = unit === "bytes" ? 1024 : 1000;
    const names = unit === "bytes" ? ["B", "KiB", "MiB", "GiB", "TiB"] : ["", "k", "M", "G", "T"];
    let index = 0;
    while (value >= step && index < names.length - 1) { value /= step; index += 1; }
    return `${Number(value.toPrecision(3))} ${names[index]}`.trim();
  }

  function drawCharts(root) {
    for (const figure of root.querySelectorAll("[data-chart]")) {
      let points = JSON.parse(figure.dataset.points);
      if ("rate" in figure.dataset) {  // a sum that grows: draw its growth per second
        points = points.slice(1).map(([at, value], index) =>
          [at, (value - points[index][1]) / (at - points[index][0] || 1)]);
      }
      const drawn = figure.querySelector("svg");
      if (points.length < 2 || !drawn || !window.uPlot) continue;
      const style = getComputedStyle(document.body);
      const [quiet, line, link] = ["--quiet", "--line", "--link"].map((name) => {
        const probe = document.createElement("i");
        probe.style.color = style.getPropertyValue(name);
        figure.append(probe);
        const colour = getComputedStyle(probe).color;
        probe.remove();
        return colour;
      });
      const label = drawn.getAttribute("aria-label");
      const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const box = document.createElement("div");
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", label);
      drawn.replaceWith(box);
      const unit = figure.dataset.unit;
      new uPlot({
        width: figure.clientWidth - 32, height: 130, legend: { show: false }, cursor: { y: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.1] } },
        axes: [axis, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => shortened(tick, unit)) }],
        series: [{}, { stroke: link, width: 1.5, points: { show: false } }],
      }, [points.map((p) => p[0]), points.map((p) => p[1])], box);
    }
  }

  function stars() {
    try { return new Set(JSON.parse(localStorage.getItem(STARS) || "[]")); } catch { return new Set(); }
  }

  function drawStars(root) {
    const starred = stars();
    for (const row of root.querySelectorAll("[data-star]")) {
      const name = row.dataset.star, button = document.createElement("button");
      button.type = "button";
      button.className = "star";
      button.setAttribute("aria-label", `Star ${name}`);
      button.setAttribute("aria-pressed", String(starred.has(name)));
      button.textContent = starred.has(name) ? "★" : "☆";
      row.firstElementChild.replaceChildren(button);
      button.addEventListener("click", () => {
        const now = stars();
        if (!now.delete(name)) now.add(name);
        localStorage.setItem(STARS, JSON.stringify([...now]));
        drawStars(document);
      });
    }
    for (const body of root.querySelectorAll("tbody:has([data-star])")) {  // mine first
      const rows = [...body.children];
      rows.sort((a, b) => Number(starred.has(b.dataset.star)) - Number(starred.has(a.dataset.star)));
      body.append(...rows);
    }
  }

  function enrich(root) {
    drawCharts(root);
    drawStars(root);
  }

  document.addEventListener("DOMContentLoaded", () => {
    enrich(document);
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const field = document.getElementById(button.dataset.copy);
        field.select();
        try { await navigator.clipboard.writeText(field.value); button.textContent = "Copied"; } catch { /* it is selected */ }
      });
    }
    const pause = document.getElementById("pause");
    pause.hidden = !document.querySelector("[data-live]");
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
    });
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    const part = event.target;
    if (!part.matches("[data-live]")) return;
    if (part.dataset.live < 1) return;  // a search: it was asked for
    const used = part.contains(document.activeElement) || String(getSelection()) !== "" || part.querySelector("details[open]");
    if (paused || document.hidden || used) event.preventDefault();  // never take away what is being read or typed
  });
  document.addEventListener("htmx:afterSwap", () => enrich(document.getElementById("live")));
})();
