// Charts of trainings: one per metric, all with one cursor, one range and one smoothing, which the address keeps. The platform
// thins out long curves; a range that is looked at closer is asked for again. The numbers are also in a table on the page.
(() => {
  "use strict";
  const holder = document.querySelector("[data-charts]");
  if (!holder) return;
  const tools = document.querySelector("[data-chart-tools]");
  const field = (name) => tools.querySelector(`[name="${name}"]`);
  const reset = tools.querySelector("[data-reset]");
  const HEIGHT = 190;
  const FEW = 60; // so few points are drawn as dots too
  const DASHES = [[], [8, 5], [2, 4], [12, 4, 2, 4], [5, 3], [1, 6]];
  const runs = JSON.parse(holder.dataset.charts); // [{name, letter, url}]
  const charts = new Map(); // metric key -> chart
  const groups = new Map(); // group -> {details, box}
  const state = { smooth: 0, x: "step", range: null, whole: null }; // ranges in units of x; whole is all there is
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const text = (value) => (value == null ? "–" : Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));
  const make = (tag, className, content) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (content) element.textContent = content;
    return element;
  };

  // --- The address keeps what was chosen.
  const number = (value) => (value === null || value === "" || !Number.isFinite(Number(value)) ? null : Number(value));
  const readAddress = () => {
    const query = new URL(location.href).searchParams;
    state.smooth = Math.min(0.99, Math.max(0, number(query.get("smooth")) ?? 0));
    state.x = query.get("x") === "time" ? "time" : "step";
    const [from, to] = [number(query.get("from")), number(query.get("to"))];
    state.range = from !== null && to !== null && to > from ? [from, to] : null;
  };
  const writeAddress = () => {
    const url = new URL(location.href);
    const put = (name, value) => (value === null ? url.searchParams.delete(name) : url.searchParams.set(name, value));
    put("smooth", state.smooth || null);
    put("x", state.x === "time" ? "time" : null);
    put("from", state.range && state.range[0]);
    put("to", state.range && state.range[1]);
    history.replaceState(history.state, "", url);
  };
  const showTools = (typed = false) => {
    field("smooth").value = state.smooth;
    tools.querySelector("output").textContent = state.smooth;
    field("x").value = state.x;
    if (!typed) {
      field("from").value = state.range ? state.range[0] : "";
      field("to").value = state.range ? state.range[1] : "";
    }
    reset.disabled = !state.range;
  };

  // --- Numbers of a curve. Time is counted in minutes since its first point, so that runs of different days lie upon each other.
  const begun = runs.map(() => Infinity); // the first moment seen of each run: a range that is looked at closer has only later ones
  const startOf = (run) => {
    begun[run] = Math.min(begun[run], ...[...charts.values()].map((chart) => chart.curves[run]?.points?.[0]?.[2] ?? Infinity));
    return begun[run];
  };
  const timeAt = (points, step) => {
    let low = 0;
    let high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= step) low = middle;
      else high = middle;
    }
    const [a, b] = [points[low], points[high]];
    return b[0] === a[0] ? a[2] : a[2] + ((b[2] - a[2]) * (step - a[0])) / (b[0] - a[0]);
  };
  const across = (curve, step, at, start) => (state.x === "step" ? step : ((at ?? timeAt(curve.points, step)) - start) / 60_000);
  const line = (curve, start) => [curve.points.map(([step, , at]) => across(curve, step, at, start)), curve.points.map((point) => point[1])];
  // Exponential moving average without the pull of its beginning (Kingma and Ba 2015, section 3); a mean of n values counts n times.
  // It goes through the values before the range first, so that a closer look shows a part of the same curve.
  const smoothed = (curve, start) => {
    const means = curve.means.length ? curve.means : curve.points.map(([step, value]) => [step, value, 1]);
    let sum = 0;
    let weight = 0;
    const take = (value, count) => {
      const keep = state.smooth ** count;
      sum = sum * keep + value * (1 - keep);
      weight = weight * keep + (1 - keep);
      return sum / weight;
    };
    curve.lead.forEach((value) => take(value, 1));
    const values = means.map(([, value, count]) => take(value, count));
    return [means.map(([step]) => across(curve, step, null, start)), values];
  };
  const increasing = ([xs, ys]) => {
    const kept = xs.map((x, index) => index === 0 || x > xs[index - 1]);
    return [xs.filter((_, index) => kept[index]), ys.filter((_, index) => kept[index])];
  };

  // --- One chart.
  const legend = (chart, index) => {
    const where = (x) => (x === undefined ? "" : state.x === "step" ? `step ${text(x)}` : `${text(x)} min`);
    const values = chart.runs.map((run, position) => {
      const ys = chart.data[position + 1];
      let at = index ?? ys.length - 1;
      while (at >= 0 && ys[at] == null) at -= 1;
      return { name: runs.length > 1 ? `${runs[run].letter} ` : "", value: ys[at], at: where(chart.data[0][at]) };
    });
    // Runs that have their values at different steps each say their own.
    const one = values.every(({ at }) => at === values[0].at);
    chart.step.textContent = one ? values[0]?.at ?? "" : "";
    chart.values.replaceChildren(...values.map(({ name, value, at }) => {
      const shown = make("span");
      shown.append(make("strong", "", name + text(value)));
      if (!one && at) shown.append(" ", make("span", "soft", at));
      return shown;
    }));
  };
  const bounds = () => {
    if (state.range) return state.range;
    const ends = [...charts.values()].filter((chart) => chart.data?.[0].length).flatMap((chart) => [chart.data[0][0], chart.data[0][chart.data[0].length - 1]]);
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    state.whole = high > low ? [low, high] : [low - 1, low + 1];
    return state.whole;
  };
  const options = (chart) => {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const dots = chart.data[0].length < FEW;
    const drawn = (run, faint) => ({
      stroke: color(`--c${run + 1}`), width: faint ? 1 : 2, alpha: faint ? 0.35 : 1, dash: runs.length > 1 ? DASHES[run] : [], spanGaps: true, points: { show: dots && !faint, size: 5 },
    });
    const smooth = state.smooth > 0;
    return {
      width: chart.box.clientWidth,
      height: HEIGHT,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: "charts" }, points: { size: 8 }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { zoom(null); return null; } },
      },
      scales: {
        x: { time: false, range: () => bounds() },
        // As by default, but a curve that is 0 throughout gets an axis to 1, not to 100.
        y: { range: (_, low, high) => (low == null ? [null, null] : low === 0 && high === 0 ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true)) },
      },
      axes: [
        { ...axis, size: 26, ...(state.x === "step" ? { incrs: [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((power) => one * 10 ** power)).sort((a, b) => a - b) } : {}) },
        { ...axis, size: (_, labels) => 16 + 7 * Math.max(3, ...(labels ?? []).map((label) => label.length)) },
      ],
      series: [{}, ...chart.runs.map((run) => drawn(run, smooth)), ...(smooth ? chart.runs.map((run) => drawn(run, false)) : [])],
      hooks: {
        setCursor: [(plot) => legend(chart, plot.cursor.idx)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          zoom(state.x === "step" ? [Math.floor(range[0]), Math.ceil(range[1])] : range.map((value) => Number(value.toPrecision(6))));
        }],
      },
    };
  };
  const prepare = (chart) => {
    chart.runs = runs.map((_, run) => run).filter((run) => chart.curves[run]?.points?.length);
    const starts = chart.runs.map(startOf);
    const lines = chart.runs.map((run, at) => increasing(line(chart.curves[run], starts[at])));
    if (state.smooth > 0) lines.push(...chart.runs.map((run, at) => increasing(smoothed(chart.curves[run], starts[at]))));
    chart.data = lines.length === 0 ? [[]] : lines.length === 1 ? lines[0] : uPlot.join(lines, lines.map((series) => series[1].map(() => 2)));
  };
  const draw = (chart) => {
    if (!chart.data?.[0].length || chart.box.clientWidth === 0) return;
    chart.plot?.destroy();
    chart.plot = new uPlot(options(chart), chart.data, chart.box);
    const curve = chart.curves[chart.runs[0]];
    const [step, value] = curve.points[curve.points.length - 1];
    chart.box.dataset.points = curve.points.length;
    chart.box.dataset.smooth = state.smooth;
    chart.box.dataset.values = [0, chart.data[1].length - 1].map((at) => text(chart.data[chart.data.length - 1][at])).join(" ");
    chart.box.dataset.range = bounds().map(text).join(" ");
    chart.box.setAttribute("aria-label", `${chart.title}: ${curve.total} points, ${text(value)} at step ${step}`);
    legend(chart, chart.plot.cursor.idx);
  };
  const drawAll = () => {
    charts.forEach(prepare);
    charts.forEach(draw);
  };

  // --- Where charts stand: the main ones first, the others folded away by group until somebody opens it.
  const groupBox = (series) => {
    if (series.main) return holder;
    let group = groups.get(series.group);
    if (!group) {
      group = { details: make("details", "panel flush more-charts"), box: make("div", "charts"), count: make("span", "soft") };
      const summary = make("summary");
      summary.append(make("h2", "", series.group), " ", group.count);
      group.details.append(summary, group.box);
      group.details.addEventListener("toggle", () => { if (group.details.open) load(); });
      [...groups.values()].reduce((_, other) => other.details, holder).after(group.details);
      groups.set(series.group, group);
    }
    return group.box;
  };
  const panel = (series) => {
    const section = make("section", "panel");
    const head = make("div", "chart-head");
    const chart = { title: series.title, main: series.main, group: series.group, curves: [], step: make("span", "soft"), values: make("span", "values"), box: make("div", "chart"), plot: null };
    chart.box.dataset.key = series.key;
    chart.box.setAttribute("role", "img");
    chart.box.setAttribute("aria-label", series.title);
    head.append(make("h2", "", series.title), " ", chart.step, " ", chart.values);
    section.append(head, chart.box);
    groupBox(series).append(section);
    const group = groups.get(series.group);
    if (!series.main) group.count.textContent = String(group.box.childElementCount);
    charts.set(series.key, chart);
    return chart;
  };
  const visible = ([, chart]) => chart.main || groups.get(chart.group).details.open;
  const wanted = () => [...charts].filter(visible).map(([key]) => key);

  // --- Loading: the main charts, those of open groups, and a range that is looked at closer.
  const steps = (run) => {
    if (!state.range) return null;
    if (state.x === "step") return state.range;
    const start = startOf(run);
    const found = [...charts.values()].flatMap((chart) => chart.curves[run]?.points ?? []).filter(([, , at]) => (at - start) / 60_000 >= state.range[0] && (at - start) / 60_000 <= state.range[1]).map((point) => point[0]);
    return found.length ? [Math.min(...found), Math.max(...found)] : null;
  };
  const ask = async (run) => {
    const url = new URL(runs[run].url, location.href);
    wanted().forEach((key) => url.searchParams.append("key", key));
    const range = steps(run);
    if (range) {
      url.searchParams.set("from", Math.max(0, Math.floor(range[0])));
      url.searchParams.set("to", Math.max(0, Math.ceil(range[1])));
    }
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  };
  let asked = 0;
  const load = async () => {
    const mine = ++asked;
    try {
      const bodies = await Promise.all(runs.map((_, run) => ask(run)));
      if (mine !== asked) return; // somebody asked for something else meanwhile
      bodies.forEach((body, run) => body.series.forEach((series) => {
        const chart = charts.get(series.key) ?? panel(series);
        if (series.points) chart.curves[run] = series;
      }));
      holder.querySelector("[data-placeholder]")?.remove();
      holder.removeAttribute("aria-busy");
      drawAll();
      if (charts.size === 0) {
        const over = bodies.every((body) => body.final);
        const note = make("p", "panel empty", over ? "This run ended before its first step." : "Charts appear after the first step.");
        note.dataset.placeholder = "";
        holder.append(note);
      }
    } catch {
      setTimeout(load, 5000);
    }
  };

  // --- What people change.
  let soon = null;
  const loadSoon = () => {
    clearTimeout(soon);
    soon = setTimeout(load, 150);
  };
  const zoom = (range, typed) => {
    state.range = range;
    writeAddress();
    showTools(typed);
    drawAll();
    loadSoon();
  };
  field("smooth").addEventListener("input", (event) => {
    state.smooth = Number(event.target.value);
    writeAddress();
    showTools();
    drawAll();
  });
  field("x").addEventListener("change", (event) => {
    state.x = event.target.value;
    state.whole = null;
    zoom(null);
  });
  ["from", "to"].forEach((name) => field(name).addEventListener("change", () => {
    const [all, from, to] = [state.whole ?? bounds(), number(field("from").value), number(field("to").value)];
    const range = [from ?? all[0], to ?? all[1]];
    if (range[1] > range[0]) zoom(from === null && to === null ? null : range, true);
  }));
  reset.addEventListener("click", () => {
    zoom(null);
    field("from").focus();
  });

  document.addEventListener("theme", drawAll);
  document.addEventListener("metrics", load);
  new ResizeObserver(() => charts.forEach((chart) => {
    if (chart.plot && chart.box.clientWidth && chart.plot.width !== chart.box.clientWidth) chart.plot.setSize({ width: chart.box.clientWidth, height: HEIGHT });
  })).observe(holder);
  readAddress();
  showTools();
  load();
})();
