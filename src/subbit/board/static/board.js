// The page of `subbit board`: a list of runs, and what the ticked ones do. It only reads; see docs/board.md.

import { COLOURS, drawAll, element, megabytes, score, table } from "./plots.js";

const MARKS = { running: "●", finished: "✓", stopped: "✕", interrupted: "‖" };
const AT_ONCE = matchMedia("(max-width: 1100px)").matches ? 8 : 200; // Rows, until more are asked for.
const $ = (id) => document.getElementById(id);

const runs = new Map(); // id -> row, as the server sends it
const courses = new Map(); // id -> {points, before, live, damaged}, of ticked runs
const ticked = new Map(); // id -> slot, which is its colour
const lines = new Map(); // id -> its <tr>
const told = new Map(); // id -> the failures that were in the news
let limit = AT_ONCE, source = null, fresh = true, chosenByHand = false, spoken = [];

// The list.

function visible() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), state = $("state").value;
  const matches = (row) => {
    const text = [row.name, row.method, row.model, row.dataset].join(" ").toLowerCase();
    return (!state || row.state === state) && words.every((word) => text.includes(word));
  };
  return [...runs.values()].filter(matches)
    .sort((a, b) => (b.state === "running") - (a.state === "running") || b.started - a.started || (a.name < b.name ? -1 : 1));
}

function makeLine(id) {
  const box = element("input", { type: "checkbox", id: `tick-${id}` });
  box.addEventListener("change", () => { chosenByHand = true; tick(id, box.checked); follow(); });
  const parts = { box, swatch: element("span", { className: "swatch", "aria-hidden": "true" }) };
  for (const name of ["name", "state", "round", "score", "mb"]) parts[name] = element("span");
  for (const name of ["about", "problem"]) parts[name] = element("span", { className: `under ${name}` });
  const label = element("label", { for: box.id }, parts.name);
  const cells = [
    element("td", {}, box),
    element("td", {}, label, parts.state, parts.about, parts.problem),
    ...["round", "score", "mb"].map((name) => element("td", { className: "n" }, parts[name])),
  ];
  label.append(parts.swatch);
  const line = element("tr", {}, ...cells);
  line.parts = parts;
  lines.set(id, line);
  return line;
}

function fillLine(row) {
  const { parts } = lines.get(row.id) ?? makeLine(row.id), slot = ticked.get(row.id);
  parts.box.checked = slot !== undefined;
  parts.swatch.className = slot === undefined ? "swatch" : `swatch c${slot % COLOURS}`;
  parts.name.textContent = row.name;
  parts.state.textContent = `${MARKS[row.state]} ${row.state}`;
  parts.state.className = `under state ${row.state}`;
  parts.about.textContent = [row.method, row.model, row.dataset].filter(Boolean).join(" · ");
  parts.round.textContent = row.rounds == null ? row.done : `${row.done}/${row.rounds}`;
  parts.score.textContent = score(row.score);
  parts.mb.textContent = megabytes(row.total_bytes);
  parts.problem.textContent = row.problem ?? "";
}

function showList() {
  const found = visible(), shown = found.slice(0, limit), body = $("rows");
  const wanted = shown.map((row) => lines.get(row.id));
  if (wanted.length !== body.children.length || wanted.some((line, place) => body.children[place] !== line)) {
    const focused = document.activeElement;
    body.replaceChildren(...wanted);
    if (body.contains(focused)) focused.focus();
  }
  $("more").hidden = found.length <= limit;
  $("more").textContent = `Show all ${found.length}`;
  const count = (state) => [...runs.values()].filter((row) => row.state === state).length;
  $("counts").textContent = Object.keys(MARKS).map((state) => [count(state), state]).filter(([n]) => n)
    .map((words) => words.join(" ")).join(", ");
  $("empty").hidden = found.length > 0;
  $("empty").textContent = runs.size ? "No run fits." : "There are no runs here yet. Start one with: subbit run";
}

// Ticks. They are in the address, so that they survive a reload.

function tick(id, on) {
  if (on && !ticked.has(id)) {
    const taken = new Set(ticked.values());
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    ticked.set(id, slot);
  } else if (!on) {
    ticked.delete(id);
    courses.delete(id);
    told.delete(id);
  }
  if (runs.has(id)) fillLine(runs.get(id));
  if (chosenByHand) history.replaceState(null, "", `#${[...ticked.keys()].join(",")}`);
}

// Until somebody ticks: the runs in progress, or else the newest.
function tickForThem() {
  if (chosenByHand) return;
  const going = [...runs.values()].filter((row) => row.state === "running").slice(0, 4);
  const wanted = going.length ? going : ticked.size ? [] : visible().slice(0, 1);
  const added = wanted.filter((row) => !ticked.has(row.id));
  for (const row of added) tick(row.id, true);
  if (added.length) follow();
}

// What the ticked runs do.

function showChosen() {
  const chosen = [...ticked].filter(([id]) => courses.has(id) && runs.has(id))
    .map(([id, slot]) => ({ row: runs.get(id), slot, course: courses.get(id) }));
  $("none").hidden = ticked.size > 0;
  document.querySelector(".plots").hidden = ticked.size === 0;
  if (ticked.size) drawAll(chosen);
  const going = chosen.filter(({ row, course }) => course.live && row.state !== "finished");
  $("rounds-section").hidden = going.length === 0;
  $("rounds-title").textContent = going.some(({ row }) => row.state === "running") ? "Rounds in progress" : "Where it ended";
  showRounds(going);
  $("comparison-section").hidden = chosen.length === 0;
  if (chosen.length) $("comparison").replaceChildren(comparison(chosen));
  const failures = chosen.flatMap(({ row, course }) => course.points.flatMap(({ phase, round, failures: found }) =>
    found.map((each) => [row.name, phase === "head" ? "head" : round, each.client, each.cause, each.message])));
  $("failures-section").hidden = failures.length === 0;
  const headings = ["Run", "#Round", "#Client", "Cause", ">Message"];
  if (failures.length) $("failures").replaceChildren(table(headings, failures.slice(-200).reverse(), "Failed client turns, the latest first"));
}

function comparison(chosen) {
  const rows = chosen.map(({ row, slot, course }) => {
    const turns = course.points.reduce((sum, point) => sum + point.failed, 0);
    const seconds = course.points.reduce((sum, point) => sum + (point.seconds ?? 0), 0);
    const name = element("span", {}, element("span", { className: `swatch c${slot % COLOURS}`, "aria-hidden": "true" }), row.name);
    const about = [score(course.before), score(row.score)];
    const sent = [row.uplink_bytes, row.downlink_bytes, row.total_bytes].map(megabytes);
    return [name, row.method, `${row.done}/${row.rounds ?? "?"}`, ...about, ...sent, turns, seconds.toFixed(1)];
  });
  const headings = ["Run", "Method", "#Rounds", "#Before", "#Score", "#MB up", "#MB down", "#MB both", "#Failed", "#Seconds"];
  return table(headings, rows, "Comparison of the ticked runs");
}

const panels = new Map(); // id -> {panel, title, said, list, failures, chips}

function showRounds(going) {
  const wanted = going.map(({ row, course }) => fillPanel(row, course));
  for (const id of panels.keys()) if (!going.some(({ row }) => row.id === id)) panels.delete(id);
  const place = $("rounds");
  if (wanted.length !== place.children.length || wanted.some((panel, at) => place.children[at] !== panel)) {
    place.replaceChildren(...wanted);
  }
}

function fillPanel(row, { live, damaged }) {
  if (!panels.has(row.id)) {
    const [title, said] = [element("h3"), element("p", { className: "quiet" })];
    const [list, failures] = [element("ul", { className: "clients" }), element("ul", { className: "failures" })];
    panels.set(row.id, { title, said, list, failures, chips: new Map(), panel: element("article", {}, title, said, list, failures) });
  }
  const { panel, title, said, list, failures, chips } = panels.get(row.id);
  const stage = live.phase === "head" ? "fitting the head" : live.purpose === "start" ? "before the first round"
    : `round ${live.round}`;
  title.textContent = `${row.name}: ${stage}` + (row.rounds == null ? "" : ` (${row.done} of ${row.rounds} done)`);
  const doing = live.purpose === "train" ? "" : live.purpose === "loss" ? "asked for their loss: " : "asked for their score: ";
  const then = row.state !== "running" ? ` The run is ${row.state}.` : live.over ? " The round is over."
    : live.arrived + live.failures.length >= live.asked ? " The server takes the step and evaluates it." : "";
  said.textContent = `${doing}${live.arrived} of ${live.asked} clients answered, ${live.failures.length} failed.${then}`
    + (damaged ? ` ${damaged} damaged lines are left out.` : "");
  const shown = live.clients.map((each) => chip(chips, each));
  if (shown.length !== list.children.length || shown.some((made, at) => list.children[at] !== made)) list.replaceChildren(...shown);
  const causes = live.failures.map((each) => `client ${each.client}: ${each.cause}: ${each.message}`);
  if (row.problem) causes.push(row.problem);
  if (causes.join("\n") !== failures.told) failures.replaceChildren(...causes.map((text) => element("li", { text })));
  failures.told = causes.join("\n");
  return panel;
}

function chip(chips, each) {
  if (!chips.has(each.client)) {
    const unseen = element("span", { className: "unseen" });
    const made = element("li", {}, element("span", { text: each.client, "aria-hidden": "true" }), unseen);
    chips.set(each.client, Object.assign(made, { unseen }));
  }
  const made = chips.get(each.client);
  const state = each.cause ? "failed" : each.bytes == null ? "waiting" : "arrived";
  const about = { failed: `failed: ${each.cause}`, waiting: "no answer yet", arrived: `answered, ${megabytes(each.bytes)} MB` }[state];
  if (made.className !== state) made.className = state;
  made.title = made.unseen.textContent = `client ${each.client}: ${about}`;
  return made;
}

// News: all of it in a list, and read out at most every few seconds.

function tell(text, failed) {
  const list = $("news"), time = element("time", { text: new Date().toLocaleTimeString() });
  if (!list.told) list.replaceChildren();
  list.told = true;
  list.prepend(element("li", { className: failed ? "failed" : "" }, time, " ", text));
  while (list.children.length > 50) list.lastChild.remove();
  spoken.push(text);
}

setInterval(() => {
  if (spoken.length) $("spoken").textContent = spoken.slice(-4).join(". ");
  spoken = [];
}, 4000);

function newsOfRow(before, row) {
  if (!before && row.state === "running") tell(`${row.name} has started`);
  else if (!before) return; // It was copied or renamed.
  else if (before.state !== row.state) tell(`${row.name} is ${row.state}${row.problem ? `: ${row.problem}` : ""}`, row.state === "stopped");
  else if (row.done > before.done) {
    tell(`${row.name}: round ${row.done - 1} is over (${row.done} of ${row.rounds ?? "?"} done)` + (row.score == null ? "" : `, ${row.score_name} ${score(row.score)}`));
  }
}

function newsOfFailures(id, first) {
  const { points, live } = courses.get(id), seen = told.get(id) ?? new Set();
  const rounds = [...points.slice(-5), ...(live ? [live] : [])];
  for (const { phase, round, failures } of rounds) {
    for (const { client, cause, message } of failures) {
      const key = `${phase} ${round} ${client} ${cause}`;
      if (!seen.has(key) && !first) tell(`${runs.get(id)?.name}: client ${client} failed: ${cause}: ${message}`, true);
      seen.add(key);
    }
  }
  told.set(id, seen);
}

// The stream. A page that nobody sees has none: browsers allow few connections to one server.

function follow() {
  source?.close();
  source = null;
  showChosen();
  if (document.hidden) return;
  const words = [...ticked.keys()].map((id) => `run=${encodeURIComponent(id)}`).join("&");
  source = new EventSource(`/api/stream?${words}`);
  const parsed = (handle) => (event) => handle(JSON.parse(event.data));
  let complete = false;
  source.addEventListener("hello", parsed(({ folder }) => {
    complete = true;
    $("folder").textContent = folder;
    connection("following");
  }));
  source.addEventListener("rows", parsed(({ rows, gone, there }) => {
    // The first message of a stream has all runs.
    const missing = complete ? [...runs.keys()].filter((id) => !rows.some((row) => row.id === id)) : gone;
    complete = false;
    for (const row of rows) {
      if (!fresh) newsOfRow(runs.get(row.id), row);
      runs.set(row.id, row);
      fillLine(row);
    }
    for (const id of missing) { runs.delete(id); lines.delete(id); tick(id, false); }
    fresh = false;
    connection(there ? "following" : "the folder is not there yet", !there);
    showList();
    tickForThem();
    showChosen();
  }));
  source.addEventListener("course", parsed(({ id, start, points, ...rest }) => {
    if (!ticked.has(id)) return;
    const known = courses.get(id), first = known === undefined;
    courses.set(id, { ...rest, points: [...(known?.points.slice(0, start) ?? []), ...points] });
    newsOfFailures(id, first);
    showChosen();
  }));
  source.addEventListener("error", () => connection("connection lost: is subbit board still running?", true));
}

function connection(text, lost = false) {
  if ($("connection").textContent !== text) $("connection").textContent = text;
  $("connection").className = lost ? "lost" : "quiet";
}

for (const id of ["search", "state"]) $(id).addEventListener("input", showList);
$("more").addEventListener("click", () => { limit = Infinity; showList(); });
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", showChosen);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showChosen);
document.addEventListener("visibilitychange", follow);
const inAddress = location.hash.slice(1).split(",").filter(Boolean);
chosenByHand = inAddress.length > 0;
for (const id of inAddress) tick(id, true);
follow();
