"use strict";
// The list of runs: asked for as the reader types, and every few seconds while jobs go on.

const search = document.getElementById("search"), state = document.getElementById("state");
const rows = document.getElementById("rows"), counted = document.getElementById("count");
const more = document.getElementById("more"), compare = document.getElementById("compare");
const chosen = new Set();
const COLUMNS = ["box", "name", "started", "took", "pace", "how", "verdict"];
let shownRuns = [], drawnRuns = "";

const row = (run) => {
  const goesOn = run.state === "running" || run.state === "unfinished";
  const box = make("input", { type: "checkbox", checked: chosen.has(run.run), onchange: () => choose(run.run, box.checked) });
  box.setAttribute("aria-label", `Choose ${run.run}`);
  const link = make("a", { href: `/${goesOn ? "live" : "run"}/${encodeURIComponent(run.run)}`, textContent: run.run });
  const started = run.started ? new Date(run.started).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" }) : "";
  const pace = run.verdict?.samples_per_s;
  const cells = [box, link, started, run.seconds === null ? "" : duration(run.seconds),
    pace === null || pace === undefined ? "" : pace.toLocaleString("en-US", { maximumFractionDigits: pace >= 100 ? 0 : 1 }),
    make("span", { className: `state ${run.state}`, textContent: run.state }), run.verdict?.words ?? ""];
  return make("tr", {}, ...cells.map((cell, place) => make("td", { className: COLUMNS[place] }, cell)));
};

const choose = (run, isChosen) => {
  if (isChosen) chosen.add(run); else chosen.delete(run);
  compare.disabled = chosen.size !== 2;
};

const ask = async (skip = 0) => {
  const query = new URLSearchParams({ words: search.value, state: state.value, skip });
  const answer = await fetch(`/api/runs?${query}`).then((response) => response.json());
  shownRuns = skip ? [...shownRuns, ...answer.runs] : answer.runs;
  const told = JSON.stringify(shownRuns);
  if (told !== drawnRuns) rows.replaceChildren(...shownRuns.map(row));  // else what has the focus would lose it
  drawnRuns = told;
  const left = answer.left ? `, ${answer.left} more are being looked at` : "";
  counted.textContent = `${count(answer.count, "run")}${left}`;
  more.hidden = shownRuns.length >= answer.count;
};

let waiting;
const soon = () => { clearTimeout(waiting); waiting = setTimeout(ask, 150); };
search.addEventListener("input", soon);
state.addEventListener("change", soon);
more.addEventListener("click", () => ask(shownRuns.length));
compare.addEventListener("click", () => {
  const order = shownRuns.map((run) => run.run).filter((run) => chosen.has(run)).reverse();
  location.href = `/compare?${new URLSearchParams({ before: order[0], after: order[1] })}`;
});
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
ask();
setInterval(() => { if (!document.hidden && shownRuns.length <= 200) ask(); }, 5000);
