// Charts of a training run: one per metric, with one cursor over all of them. The numbers are also in a table on the page.
(() => {
  "use strict";
  const holder = document.querySelector("[data-charts]");
  if (!holder) return;
  const HEIGHT = 190;
  const charts = new Map(); // metric key -> {plot, box, value, series}
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const text = (value) => (value == null ? "–" : String(Number(value.toPrecision(4))));

  const legend = (chart, index) => {
    const points = chart.series.points;
    const [step, value] = points[index ?? points.length - 1];
    chart.step.textContent = `step ${step}`;
    chart.value.textContent = text(value);
  };

  const options = (chart, width) => {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width,
      height: HEIGHT,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "steps" }, drag: { x: false, y: false }, points: { size: 8 } },
      scales: { x: { time: false } },
      axes: [
        { ...axis, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
        { ...axis, size: (_, labels) => 16 + 7 * Math.max(3, ...(labels ?? []).map((label) => label.length)) },
      ],
      series: [{}, { stroke: color("--accent"), width: 2, points: { show: chart.series.points.length < 60, size: 5 } }],
      hooks: { setCursor: [(plot) => legend(chart, plot.cursor.idx)] },
    };
  };

  // All metrics but the main ones: folded away until somebody asks for them.
  let others = null;
  const folded = () => {
    if (!others) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      others = document.createElement("div");
      const title = document.createElement("h2");
      details.className = "panel flush more-charts";
      others.className = "charts";
      title.textContent = "More charts";
      summary.append(title);
      details.append(summary, others);
      details.addEventListener("toggle", () => details.open && charts.forEach((chart) => !chart.series.main && draw(chart)));
      holder.after(details);
    }
    return others;
  };

  const panel = (series) => {
    const section = document.createElement("section");
    const head = document.createElement("div");
    const title = document.createElement("h2");
    const step = document.createElement("span");
    const value = document.createElement("strong");
    const box = document.createElement("div");
    section.className = "panel";
    head.className = "chart-head";
    step.className = "soft";
    title.textContent = series.title;
    box.className = "chart";
    box.dataset.key = series.key;
    box.setAttribute("role", "img");
    head.append(title, " ", step, " ", value);
    section.append(head, box);
    (series.main ? holder : folded()).append(section);
    return { plot: null, box, step, value, series };
  };

  const draw = (chart) => {
    chart.plot?.destroy();
    const points = chart.series.points;
    const data = [points.map((point) => point[0]), points.map((point) => point[1])];
    chart.plot = new uPlot(options(chart, chart.box.clientWidth), data, chart.box);
    chart.drawn = points.length;
  };

  const show = (series) => {
    if (series.points.length === 0) return;
    let chart = charts.get(series.key);
    if (!chart) charts.set(series.key, (chart = panel(series)));
    chart.series = series;
    const points = series.points;
    const last = points[points.length - 1];
    if (chart.plot && chart.drawn < 60 === points.length < 60) {
      chart.plot.setData([points.map((point) => point[0]), points.map((point) => point[1])]);
    } else {
      draw(chart);
    }
    chart.box.dataset.points = points.length;
    chart.box.setAttribute("aria-label", `${series.title}: ${points.length} points, ${text(last[1])} at step ${last[0]}`);
    legend(chart, chart.plot.cursor.idx);
  };

  const load = async () => {
    try {
      const answer = await fetch(holder.dataset.charts, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(answer.status);
      const body = await answer.json();
      holder.querySelector("[data-placeholder]")?.remove();
      holder.removeAttribute("aria-busy");
      body.series.forEach(show);
      if (charts.size === 0) holder.innerHTML = `<p class="panel empty" data-placeholder>${body.final ? "This run ended before its first step." : "Charts appear after the first step."}</p>`;
    } catch {
      setTimeout(load, 5000);
    }
  };

  document.addEventListener("theme", () => charts.forEach(draw));
  document.addEventListener("metrics", load);
  new ResizeObserver(() => charts.forEach((chart) => {
    if (chart.plot && chart.plot.width !== chart.box.clientWidth) chart.plot.setSize({ width: chart.box.clientWidth, height: HEIGHT });
  })).observe(holder);
  load();
})();
