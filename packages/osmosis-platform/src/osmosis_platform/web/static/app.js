// Theme, charts and log following. Everything here is an improvement: pages work without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const saved = localStorage.getItem("theme");
  if (saved) root.dataset.theme = saved;

  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-toggle-theme]")) return;
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    drawn.forEach((chart) => chart.destroy());
    drawn.clear();
    document.querySelectorAll("[data-charts]").forEach(load);
  });

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  const drawn = new Map();

  const options = (series, width) => ({
    width, height: 180, cursor: { sync: { key: "steps" } }, legend: { live: true },
    scales: { x: { time: false } },
    axes: [
      { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] },
      { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, size: 56 },
    ],
    series: [
      { label: "step" },
      { label: series.title, stroke: color("--accent"), width: 2, points: { show: series.points.length < 60, size: 5 }, value: (_, v) => (v == null ? "–" : Number(v.toPrecision(4))) },
    ],
  });

  const draw = (holder, series) => {
    let box = holder.querySelector(`[data-key="${CSS.escape(series.key)}"]`);
    if (!box) {
      const panel = document.createElement("section");
      panel.className = "panel";
      const title = document.createElement("h2");
      title.textContent = series.title;
      box = document.createElement("div");
      box.className = "chart";
      box.dataset.key = series.key;
      panel.append(title, box);
      holder.append(panel);
    }
    const data = [series.points.map((p) => p[0]), series.points.map((p) => p[1])];
    const chart = drawn.get(box);
    if (chart && chart.root.isConnected) chart.setData(data);
    else drawn.set(box, new uPlot(options(series, box.clientWidth || 320), data, box));
  };

  const load = async (holder) => {
    try {
      const answer = await fetch(holder.dataset.charts, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      if (!answer.ok) return;
      const body = await answer.json();
      holder.hidden = body.series.length === 0;
      body.series.forEach((series) => draw(holder, series));
      if (!body.final) setTimeout(() => load(holder), 3000);
    } catch {
      setTimeout(() => load(holder), 5000);
    }
  };

  addEventListener("resize", () => drawn.forEach((chart, box) => chart.setSize({ width: box.clientWidth, height: 180 })));

  const follow = () => document.querySelectorAll(".log[data-follow]").forEach((log) => { log.scrollTop = log.scrollHeight; });
  let pinned = true;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const log = event.target.querySelector?.(".log[data-follow]");
    if (log) pinned = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  });
  document.addEventListener("htmx:afterSwap", () => { if (pinned) follow(); });
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-charts]").forEach(load);
    follow();
  });
})();
