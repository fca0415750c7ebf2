// The two plots of the ticked runs, and the same numbers as tables.

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
export const COLOURS = 8;

// Text goes into the page as text only. Whatever a run is called, it is no markup.
export function element(tag, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A heading that begins with "#" is that of a column of numbers, one with ">" of long texts.
export function table(headings, rows, caption) {
  const classes = headings.map((heading) => ({ "#": "n", ">": "long" })[heading[0]]);
  headings = headings.map((heading) => heading.replace(/^[#>]/, ""));
  const cell = (tag, value, column) => {
    const made = element(tag, { className: classes[column], scope: tag === "th" ? "col" : undefined });
    made.append(value instanceof Node ? value : String(value ?? ""));
    return made;
  };
  const body = rows.map((row) => element("tr", {}, ...row.map((value, column) => cell("td", value, column))));
  return element("table", {},
    element("caption", { className: "unseen", text: caption }),
    element("thead", {}, element("tr", {}, ...headings.map((heading, column) => cell("th", heading, column)))),
    element("tbody", {}, ...body));
}

const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, useGrouping: false });
export const megabytes = (bytes) => bytes == null ? "" : short.format(bytes / 1e6);
export const score = (value) => value == null ? "" : value.toFixed(4);

// The rounds of a run that have a score. They count from 0, as in all that a run writes.
function curve(course) {
  return course.points.filter((point) => point.phase === "main" && point.round != null && point.score != null)
    .map((point) => ({ round: point.round, score: point.score, bytes: point.total_bytes }));
}

// Plotly reads a few tags in names.
const literal = (name) => name.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function draw(place, shown, { x, title, name, log }) {
  const style = getComputedStyle(document.documentElement);
  const of = (variable) => style.getPropertyValue(variable).trim();
  const traces = shown.map(({ row, slot, points }) => ({
    name: literal(row.name),
    x: points.map(x), y: points.map((point) => point.score),
    cliponaxis: false,
    mode: points.length > 60 ? "lines" : "lines+markers",
    line: { color: of(`--c${slot % COLOURS}`), width: 2, dash: DASHES[Math.floor(slot / COLOURS) % DASHES.length] },
    marker: { size: 7, symbol: SYMBOLS[slot % SYMBOLS.length] },
    hovertemplate: `%{y:.4f}<extra>${literal(row.name).replace(/%\{/g, "%&#123;")}</extra>`,
  }));
  const axis = {
    gridcolor: of("--grid"), linecolor: of("--line"), zeroline: false, automargin: true, fixedrange: true,
    tickfont: { color: of("--quiet") },
  };
  const layout = {
    showlegend: false, hovermode: "closest", dragmode: false, height: 300,
    margin: { l: 48, r: 12, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: of("--text") },
    hoverlabel: { bgcolor: of("--surface"), bordercolor: of("--line"), font: { color: of("--text") }, namelength: 40 },
    xaxis: { ...axis, title: { text: title, font: { size: 13 } }, type: log ? "log" : "linear", rangemode: log ? "normal" : "tozero" },
    yaxis: { ...axis, title: { text: literal(name), font: { size: 13 } } },
  };
  if (log) layout.xaxis.dtick = 1;
  if (title === "round") Object.assign(layout.xaxis, { tickformat: "d", nticks: 8 });
  Plotly.react(place, traces, layout, { displayModeBar: false, responsive: true });
}

// `chosen`: the ticked runs as {row, slot, course}.
export function drawAll(chosen) {
  // Those in progress are drawn last, on top.
  const order = chosen.toSorted((a, b) => (a.row.state === "running") - (b.row.state === "running"));
  const shown = order.map((each) => ({ ...each, points: curve(each.course) }));
  const names = new Set(chosen.map(({ row }) => row.score_name).filter(Boolean));
  const name = names.size === 1 ? [...names][0] : "score";
  const sent = shown.map((each) => ({ ...each, points: each.points.filter((point) => point.bytes != null) }));
  const all = sent.flatMap(({ points }) => points.map((point) => point.bytes)).filter((bytes) => bytes > 0);
  // Methods differ by factors: then a logarithmic axis, which has no place for zero.
  const ends = sent.map(({ points }) => points.at(-1)?.bytes).filter((bytes) => bytes > 0);
  const log = Math.max(...ends) > 10 * Math.min(...ends) && all.length > 0;
  if (log) for (const each of sent) each.points = each.points.filter((point) => point.bytes > 0);
  const [rounds, bytes] = ["by-round", "by-bytes"].map((id) => document.getElementById(id));
  draw(rounds, shown, { x: (point) => point.round, title: "round", name });
  draw(bytes, sent, { x: (point) => point.bytes / 1e6, title: log ? "MB, logarithmic" : "MB", name, log });
  const ended = (points) => points.length ? `${score(points.at(-1).score)} after round ${points.at(-1).round}` : "no score yet";
  const spoken = shown.map(({ row, points }) => `${row.name}: ${ended(points)}`).join("; ");
  rounds.setAttribute("aria-label", `Plot of ${name} by round. ${spoken}. The table below has all numbers.`);
  bytes.setAttribute("aria-label", `Plot of ${name} against megabytes. ${spoken}. The table below has all numbers.`);
  tables(shown, name);
}

// Only while they are open: they may be long.
function tables(shown, name) {
  const [rounds, bytes] = ["by-round-table", "by-bytes-table"].map((id) => document.getElementById(id));
  if (rounds.closest("details").open) {
    const numbers = [...new Set(shown.flatMap(({ points }) => points.map((point) => point.round)))].sort((a, b) => a - b);
    const scores = shown.map(({ points }) => new Map(points.map((point) => [point.round, point.score])));
    const rows = numbers.map((number) => [number, ...scores.map((found) => score(found.get(number)))]);
    rounds.replaceChildren(table(["#Round", ...shown.map(({ row }) => `#${row.name}`)], rows, `${name} by round`));
  }
  if (bytes.closest("details").open) {
    const rows = shown.flatMap(({ row, points }) => points.filter((point) => point.bytes != null)
      .map((point) => [row.name, point.round, megabytes(point.bytes), score(point.score)]));
    bytes.replaceChildren(table(["Run", "#Round", "#MB both ways", `#${name}`], rows, `${name} against megabytes`));
  }
}
