"use strict";
// A run that goes on: what `fuelline watch` would show, as it comes.

const main = document.getElementById("main");
const put = (place, words) => { document.getElementById(place).textContent = words; };
const share = (value) => (value === null || value === undefined ? "-" : percent(value));
const maybe = (value, words) => (value === null || value === undefined ? "-" : words(value));
const partOf = (rank, part) => rank.shares.filter((each) => each.part === part).reduce((sum, each) => sum + each.frac, 0);
const WAITS = ["input", "epoch start", "epoch"];

const rankRow = (rank) => {
  const space = "http://www.w3.org/2000/svg", bar = document.createElementNS(space, "svg");
  bar.setAttribute("viewBox", "0 0 1000 10");
  bar.setAttribute("preserveAspectRatio", "none");
  bar.setAttribute("class", "share");
  let at = 0;
  for (const { part, frac } of rank.shares) {
    const piece = document.createElementNS(space, "rect");
    for (const [key, value] of Object.entries({ x: at, width: 1000 * frac, height: 10, class: `p-${part.replaceAll(" ", "-")}` })) piece.setAttribute(key, value);
    bar.append(piece);
    at += 1000 * frac;
  }
  const words = rank.shares.map(({ part, frac }) => `${part} ${percent(frac)}`).join(", ");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", words);
  const cells = [rank.rank ?? "", rank.pid, maybe(rank.steps, (value) => value.toLocaleString("en-US")), maybe(rank.steps_per_s, three),
    maybe(rank.step_mean_s, duration), maybe(rank.step_p95_s, duration), rank.shares.length ? share(WAITS.reduce((sum, part) => sum + partOf(rank, part), 0)) : "-", bar, rank.phase];
  return make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
};

const HEADS = ["rank", "pid", "steps", "steps/s", "mean", "p95", "input", "last seconds", "now"];

const legend = (ranks) => {
  const parts = [...new Set(ranks.flatMap((rank) => rank.shares.filter(({ frac }) => frac >= 0.005).map(({ part }) => part)))];
  return parts.map((part) => make("li", {}, make("span", { className: `key p-${part.replaceAll(" ", "-")}` }), WORDS[part] ?? part));
};
const WORDS = { input: "wait for input", loop: "between steps", "own code": "your own code", transfer: "copy to device", sync: "synchronise" };

const draw = (snapshot) => {
  put("state", `${snapshot.state} for ${duration(snapshot.run_s)}`);
  document.getElementById("top").className = `summary ${!snapshot.code ? "unsure" : snapshot.code === "CP400" ? "fine" : "alarm"}`;
  if (snapshot.verdict) put("verdict", snapshot.verdict);
  else if (snapshot.ranks.some((rank) => rank.steps)) put("verdict", "Training; the first diagnosis is being made");
  const pace = snapshot.ranks.map((rank) => rank.samples_per_s).filter((value) => value !== null);
  const steps = Math.max(0, ...snapshot.ranks.map((rank) => rank.steps ?? 0));
  const lost = snapshot.lost_share === null ? [] : [["of the time lost", percent(snapshot.lost_share)]];
  const figures = [...lost, ["steps", steps.toLocaleString("en-US")], ["samples per second", pace.length ? Math.round(pace.reduce((sum, each) => sum + each, 0)).toLocaleString("en-US") : "-"],
    ["ranks", snapshot.ranks.length], ["cores in use", maybe(snapshot.host.cores_used, three)]];
  document.getElementById("figures").replaceChildren(...figures.map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
  document.getElementById("ranks").replaceChildren(make("thead", {}, make("tr", {}, ...HEADS.map((head) => make("th", { scope: "col", textContent: head })))), make("tbody", {}, ...snapshot.ranks.map(rankRow)));
  document.getElementById("legend").replaceChildren(...legend(snapshot.ranks));
  const host = snapshot.host, rate = (value) => maybe(value, (each) => `${sized(each)}/s`);
  const lines = [`cores: ${maybe(host.cores_used, three)} of ${maybe(host.cores_allowed, three)}, others ${maybe(host.cores_others, three)}`,
    `disks: read ${rate(host.disk_read_bytes_per_s)}, write ${rate(host.disk_write_bytes_per_s)}`, `network: in ${rate(host.net_in_bytes_per_s)}, out ${rate(host.net_out_bytes_per_s)}`,
    ...snapshot.devices.map((device) => `${device.device} ${device.name}: ${share(device.reported_frac)} reported as busy, ${share(device.sm_frac)} of its SMs, ${maybe(device.watts, (value) => `${Math.round(value)} W`)}`)];
  document.getElementById("machine").replaceChildren(...lines.map((line) => make("li", { textContent: line })));
};

const source = new EventSource(main.dataset.events);
const end = (words) => { source.close(); put("state", words); document.getElementById("stop").disabled = true; };
source.addEventListener("snapshot", (event) => draw(JSON.parse(event.data)));
source.addEventListener("over", (event) => end(JSON.parse(event.data) || "ended; its report has all of it"));
source.addEventListener("error", () => put("state", "the server does not answer; trying again"));
document.getElementById("stop").addEventListener("click", () => end("no longer watched"));
