/* Draws the plots of a page from its JSON, in the colours of its style sheet, and switches between light and dark. */
"use strict";
(() => {
  const DASHES = ["solid", "dash", "dot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down"];
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();

  const span = (series) => {
    const all = series.flatMap((each) => each.x);
    return [Math.min(...all), Math.max(...all)];
  };

  /* Whole numbers on an axis: every one of them, or every 2nd, 5th, 10th, ... */
  const step = (series) => {
    const [low, high] = span(series);
    const rough = Math.max(1, (high - low) / 10), power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  };

  const trace = (each, number) => {
    const own = colour("c" + (number % 8));
    const common = {
      name: each.name, x: each.x, y: each.y, text: each.text, showlegend: false, hoverlabel: { namelength: -1 },
      hovertemplate: (each.text ? "%{text}<br>" : "") + "%{x}: %{y}<extra>%{fullData.name}</extra>",
    };
    if (each.mode === "bars") return { ...common, type: "bar", marker: { color: own } };
    const found = {
      ...common, type: "scatter", mode: each.mode === "points" ? "markers" : "lines+markers", cliponaxis: false,
      line: { color: own, width: 2.5, dash: DASHES[Math.floor(number / 8) % 3] },
      marker: { color: own, size: each.mode === "points" ? 9 : 6, symbol: SYMBOLS[(number + 3 * Math.floor(number / 8)) % 8] }, connectgaps: true,
    };
    if (each.mode === "points" && each.x.length === 1 && each.text && innerWidth > 700) {
      Object.assign(found, { mode: "markers+text", textposition: "top center", textfont: { color: colour("text"), size: 12 } });
    }
    return found;
  };

  const level = (line, ends) => ({
    type: "scatter", mode: "lines", x: ends, y: [line.y, line.y], name: line.name, showlegend: false,
    line: { color: colour("quiet"), width: 1.5, dash: "dash" }, hovertemplate: "%{y}<extra>" + "%{fullData.name}</extra>",
  });

  const layout = (spec) => {
    const axis = (title) => ({
      title: { text: title, standoff: 10 }, gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false,
      automargin: true, color: colour("quiet"), fixedrange: !matchMedia("(pointer: fine)").matches,
    });
    const found = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false, barmode: "stack", bargap: 0.25,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("quiet") },
      margin: { l: 48, r: 12, t: 12, b: 44 }, xaxis: axis(spec.x), yaxis: axis(spec.y),
      hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: colour("text") } },
      annotations: spec.lines.map((line) => ({
        text: line.name, xref: "paper", x: 0.01, y: line.y, xanchor: "left", yanchor: "bottom", showarrow: false,
        font: { size: 12, color: colour("quiet") },
      })),
    };
    if (spec.log) Object.assign(found.xaxis, { type: "log", dtick: innerWidth > 700 ? "D2" : 1, exponentformat: "none" });
    if (spec.whole) Object.assign(found.xaxis, { tickformat: "d", tick0: 0, dtick: step(spec.series) });
    if (spec.from_zero) found.yaxis.rangemode = "tozero";
    return found;
  };

  /* Names are data: a "<" in them is no markup of plotly's. */
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const cleaned = (spec) => ({
    ...spec, x: plain(spec.x), y: plain(spec.y),
    series: spec.series.map((each) => ({ ...each, name: plain(each.name), text: each.text && each.text.map(plain) })),
    lines: spec.lines.map((line) => ({ ...line, name: plain(line.name) })),
  });

  const draw = (area, spec, hidden = new Set()) => {
    const clean = cleaned(spec);
    const traces = clean.series.map((each, number) => ({ ...trace(each, number), visible: !hidden.has(number) }));
    const levels = clean.lines.map((line) => level(line, span(clean.series)));
    return Plotly.react(area, [...traces, ...levels], layout(clean), { displayModeBar: false, responsive: true });
  };

  const start = () => {
    const found = document.getElementById("plots");
    const specs = found ? JSON.parse(found.textContent) : {};
    const plots = Object.entries(specs).map(([id, spec]) => ({ area: document.getElementById(id), spec, hidden: new Set() }));
    const all = () => plots.forEach((plot) => draw(plot.area, plot.spec, plot.hidden));
    all();
    plots.forEach((plot) => {
      const legend = plot.area.closest("figure").querySelectorAll(".legend button");
      legend.forEach((button, number) => button.addEventListener("click", () => {
        const hide = !plot.hidden.has(number);
        plot.hidden[hide ? "add" : "delete"](number);
        button.setAttribute("aria-pressed", String(!hide));
        draw(plot.area, plot.spec, plot.hidden);
      }));
    });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const button = document.getElementById("scheme");
    const isDark = () => (root.dataset.scheme ? root.dataset.scheme === "dark" : dark.matches);
    const show = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; all(); };
    button.addEventListener("click", () => { root.dataset.scheme = isDark() ? "light" : "dark"; show(); });
    dark.addEventListener("change", show);
    button.hidden = false;
    button.textContent = isDark() ? "Light colours" : "Dark colours";
  };

  window.subbitPages = { draw };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
