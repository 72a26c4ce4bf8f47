"use strict";
// The run over time. Columns are buckets of steps, of the level that has about one for a pixel;
// their height is the mean step, divided into its parts, with a line from the shortest to the
// longest. Lanes below share the axis. A selected stretch is added up from the finest level.

const UNITS = [["s", 1], ["ms", 1e-3], ["us", 1e-6]];
const three = (value) => (value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : String(Number(value.toPrecision(2))));
const duration = (seconds) => {
  const whole = Math.round(seconds);
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  if (seconds >= 59.95) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  for (const [unit, step] of UNITS) if (seconds >= step) return `${three(seconds / step)} ${unit}`;
  return seconds > 0 ? `${(seconds * 1e9).toFixed(0)} ns` : "0 s";
};
const short = (seconds) => duration(seconds).replace(/\.0+ /, " ").replace(/(min|h) 0 (s|min)$/, "$1");
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const count = (value, noun) => `${value.toLocaleString("en-US")} ${noun}${value === 1 ? "" : "s"}`;
const sized = (value) => {
  for (const [unit, step] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (value >= step) return `${three(value / step)} ${unit}`;
  return `${value.toFixed(0)} bytes`;
};
const laneWords = { frac: percent, cores: (value) => `${three(value)} cores`, bytes: sized, "bytes/s": (value) => `${sized(value)}/s` };
const SIGNS = { epoch: "E", checkpoint: "C", validation: "V", fix: "F", throttled: "T" };
// Columns beyond the scale have an arrow if they are so many times as long.
const BEYOND = 1.5;
const LEFT = 52, RIGHT = 10, TOP = 26, STEPS = 210, LANE = 46, GAP = 24, FOOT = 24;
const roundStep = (span, most) => {
  const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
};
const ofClock = [30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800];
const timeStep = (span, most) => (span / most <= 20 ? roundStep(span, most) : ofClock.find((each) => each >= span / most) ?? roundStep(span, most));

class Story {
  constructor(element) {
    const { picture, words, waiting } = dataOf(element);
    Object.assign(this, { element, picture, words });
    this.waiting = new Set(waiting);
    this.parts = Object.keys(picture.levels[0].parts_us);
    this.levels = picture.levels.map((level) => this.prepare(level));
    this.start = picture.start_s;
    this.end = this.levels[0].starts.at(-1);
    this.from = this.start;
    this.to = this.end;
    this.cursor = null;
    this.selected = null;
    this.build();
    this.listen();
  }

  prepare(level) {
    const starts = new Float64Array(level.steps.length + 1);
    starts[0] = this.picture.start_s;
    level.length_us.forEach((length, at) => { starts[at + 1] = starts[at] + length / 1e6; });
    return { ...level, starts };
  }

  build() {
    const stage = this.element.querySelector(".stage");
    const button = (words, act) => make("button", { type: "button", textContent: words, onclick: act });
    this.shown = make("span", { className: "shown" });
    const tools = make("div", { className: "tools" },
      button("Zoom in", () => this.zoom(0.5)), button("Zoom out", () => this.zoom(2)),
      (this.zoomTo = button("Zoom to the selection", () => this.show(...this.selected))),
      (this.whole = button("Whole run", () => this.show(this.start, this.end))), this.shown);
    const legend = make("ul", { className: "legend" }, ...this.parts.map((part) => make("li", {}, this.key(part), this.words[part] ?? part)));
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.hint = make("div", { className: "hint", hidden: true });
    this.view = make("div", { className: "view", tabIndex: 0, role: "group" }, this.canvas, this.hint);
    this.view.setAttribute("aria-label", "Steps over time. Arrow keys move, with Shift they select, plus and minus zoom, 0 shows the whole run, Escape clears.");
    this.spoken = make("p", { className: "skip", "aria-live": "polite" });
    const keys = make("p", { className: "keys" }, "Drag to select a stretch; keys: ");
    for (const [key, what] of [["← →", " move, "], ["Shift", " selects, "], ["+ −", " zoom, "], ["0", " whole run, "], ["Esc", " clears."]]) keys.append(make("kbd", { textContent: key }), what);
    this.panel = make("div", { className: "stretch" });
    stage.append(tools, legend, this.view, keys, this.spoken, this.panel);
    if (this.picture.moments.length) stage.append(this.listMoments());
    this.patterns();
  }

  key(part) {
    const waits = this.waiting.has(part) ? " waits" : "";
    return make("span", { className: `key p-${part.replaceAll(" ", "-")}${waits}` });
  }

  listMoments() {
    const seen = {};
    for (const moment of this.picture.moments) (seen[moment.kind] ??= []).push(moment);
    const entries = Object.entries(seen).map(([kind, all]) => {
      const first = all.slice(0, 6).map((each) => `${duration(each.at_s)}${each.detail ? ` (${each.detail})` : ""}`).join(", ");
      return make("li", {}, make("b", { textContent: SIGNS[kind] }), ` ${this.words[kind] ?? kind}: ${first}${all.length > 6 ? `, ${all.length - 6} more` : ""}`);
    });
    const list = make("ul", { className: "legend" }, ...entries);
    list.classList.add("moments");
    return list;
  }

  patterns() {
    const probe = make("span", { hidden: true });
    this.element.append(probe);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    this.colours = {};
    for (const part of this.parts) {
      probe.className = `key p-${part.replaceAll(" ", "-")}`;
      this.colours[part] = getComputedStyle(probe).getPropertyValue("--part").trim();
    }
    probe.remove();
    this.theme = Object.fromEntries(["ink", "soft", "line", "faint", "card", "accent", "c-none", "c-input", "c-turn", "c-collectives", "c-own", "c-checkpoint"].map((name) => [name, colour(`--${name}`)]));
    const tile = make("canvas", { width: 8, height: 8 }), pen = tile.getContext("2d");
    pen.strokeStyle = "rgb(255 255 255 / .42)";
    pen.lineWidth = 1.6;
    for (const shift of [-8, 0, 8]) { pen.beginPath(); pen.moveTo(shift, 8); pen.lineTo(shift + 8, 0); pen.stroke(); }
    this.hatch = this.canvas.getContext("2d").createPattern(tile, "repeat");
  }

  listen() {
    new ResizeObserver(() => this.draw()).observe(this.view);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.patterns(); this.draw(); });
    const timeAt = (event) => this.time(event.clientX - this.canvas.getBoundingClientRect().left);
    let pressed = null;
    this.view.addEventListener("pointerdown", (event) => { pressed = timeAt(event); this.view.setPointerCapture(event.pointerId); });
    this.view.addEventListener("pointermove", (event) => {
      this.cursor = timeAt(event);
      this.anchored = pressed !== null && Math.abs(this.x(this.cursor) - this.x(pressed)) > 4;
      if (this.anchored) this.select(pressed, this.cursor);
      else this.draw();
      if (this.anchored) this.hint.hidden = true; else this.point(event);
    });
    this.view.addEventListener("pointerup", (event) => {
      if (pressed !== null && Math.abs(this.x(timeAt(event)) - this.x(pressed)) <= 4) this.select(null);
      pressed = null;
    });
    this.view.addEventListener("pointerleave", () => { this.cursor = null; this.hint.hidden = true; this.draw(); });
    this.view.addEventListener("dblclick", (event) => this.zoom(0.4, timeAt(event)));
    this.view.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
    }, { passive: false });
    this.view.addEventListener("keydown", (event) => this.press(event));
    this.show(this.start, this.end);
  }

  press(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const acts = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(this.start, this.end),
      Escape: () => this.select(null), Enter: () => this.selected && this.show(...this.selected), Home: () => this.move(this.start), End: () => this.move(this.end) };
    if (way) {
      const before = this.cursor ?? (this.from + this.to) / 2;
      const after = before + (way * (this.to - this.from)) / 60;
      if (event.shiftKey) { this.anchor ??= before; this.select(this.anchor, after); } else this.anchor = null;
      this.move(after);
    } else if (acts[event.key] && !event.ctrlKey && !event.metaKey) acts[event.key]();
    else return;
    event.preventDefault();
  }

  move(time) {
    this.cursor = Math.min(this.end, Math.max(this.start, time));
    const width = this.to - this.from;
    if (this.cursor < this.from) this.show(this.cursor, this.cursor + width);
    else if (this.cursor > this.to) this.show(this.cursor - width, this.cursor);
    else this.draw();
    this.point(null);
  }

  x(time) { return LEFT + ((time - this.from) / (this.to - this.from)) * (this.width - LEFT - RIGHT); }
  time(x) { return this.from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (this.to - this.from); }

  zoom(factor, about = this.cursor ?? (this.from + this.to) / 2) {
    this.show(about - (about - this.from) * factor, about + (this.to - about) * factor);
  }

  show(from, to) {
    const least = Math.min(this.end - this.start, Math.max(1e-4, (this.end - this.start) / 2e5));
    const width = Math.min(this.end - this.start, Math.max(least, to - from));
    this.from = Math.min(Math.max(this.start, from), this.end - width);
    this.to = this.from + width;
    const isWhole = width >= (this.end - this.start) * 0.9999;
    this.whole.disabled = isWhole;
    this.shown.textContent = `${duration(this.from)} to ${duration(this.to)}${isWhole ? ", the whole run" : ""}; line: p50, dashed: p95`;
    this.summarise();
    this.draw();
  }

  select(one, other) {
    this.selected = one === null ? null : [Math.max(this.start, Math.min(one, other)), Math.min(this.end, Math.max(one, other))];
    this.summarise();
    this.draw();
  }

  // The first bucket that ends after a time.
  bucket(level, time) {
    let low = 0, high = level.steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (level.starts[middle + 1] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  summarise() {
    this.zoomTo.disabled = !this.selected;
    const [from, to] = this.selected ?? [this.from, this.to], level = this.levels[0];
    const first = this.bucket(level, from + 1e-9), last = this.bucket(level, to - 1e-9);
    const sums = Object.fromEntries(this.parts.map((part) => [part, 0]));
    let steps = 0, longest = 0, length = 0;
    for (let at = first; at <= last; at++) {
      for (const part of this.parts) sums[part] += level.parts_us[part][at];
      steps += level.steps[at];
      length += level.length_us[at]; // what follows the last step too, as in the mean of the report
      longest = Math.max(longest, level.most_us[at]);
    }
    const whole = Object.values(sums).reduce((sum, value) => sum + value, 0) || 1;
    const lead = this.selected ? "Selected" : "Shown";
    const mean = steps && this.picture.per === "step" ? `, mean ${duration(length / steps / 1e6)}, longest ${duration(longest / 1e6)}` : "";
    const title = `${lead}: ${duration(level.starts[first])} to ${duration(level.starts[last + 1])}, ${count(steps, this.picture.per)}${mean}`;
    const order = this.parts.filter((part) => sums[part] / whole >= 0.001);
    const entries = order.map((part) => {
      const share = make("data", { textContent: percent(sums[part] / whole) });
      share.setAttribute("value", sums[part] / whole);
      share.setAttribute("data-part", part);
      return make("li", {}, this.key(part), `${this.words[part] ?? part} `, share);
    });
    this.panel.replaceChildren(make("h3", { textContent: title }), this.strip(order, sums, whole), make("ul", {}, ...entries));
  }

  strip(order, sums, whole) {
    const space = "http://www.w3.org/2000/svg", strip = document.createElementNS(space, "svg");
    strip.setAttribute("viewBox", "0 0 1000 10");
    strip.setAttribute("preserveAspectRatio", "none");
    strip.setAttribute("class", "strip");
    strip.setAttribute("aria-hidden", "true");
    let at = 0;
    for (const part of order) {
      const piece = document.createElementNS(space, "rect"), width = (1000 * sums[part]) / whole;
      for (const [key, value] of Object.entries({ x: at, width, height: 10, class: `p-${part.replaceAll(" ", "-")}` })) piece.setAttribute(key, value);
      strip.append(piece);
      at += width;
    }
    return strip;
  }

  draw() {
    const ratio = devicePixelRatio || 1, lanes = this.picture.lanes;
    this.width = this.view.clientWidth;
    if (!this.width) return;
    this.height = TOP + STEPS + lanes.length * (LANE + GAP) + FOOT;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    this.canvas.style.height = `${this.height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    this.drawAxis(pen);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height);
    pen.clip();
    this.drawSteps(pen);
    lanes.forEach((lane, at) => this.drawLane(pen, lane, TOP + STEPS + at * (LANE + GAP) + GAP));
    this.drawMarks(pen);
    pen.restore();
    this.drawScales(pen);
  }

  drawAxis(pen) {
    const step = timeStep(this.to - this.from, Math.max(3, (this.width - LEFT) / 110));
    pen.strokeStyle = this.theme.line;
    pen.fillStyle = this.theme.soft;
    pen.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.beginPath(); pen.moveTo(x, TOP); pen.lineTo(x, this.height - FOOT); pen.stroke();
      const words = step >= 30 ? short(at) : `${Number(at.toFixed(Math.max(0, -Math.floor(Math.log10(step)))))} s`;
      if (x > LEFT + 12 && x < this.width - 24) pen.fillText(words, x, this.height - FOOT / 2);
    }
  }

  drawSteps(pen) {
    const room = this.width - LEFT - RIGHT;
    this.level = this.levels.find((level) => this.bucket(level, this.to) - this.bucket(level, this.from) <= room) ?? this.levels.at(-1);
    const level = this.level, first = this.bucket(level, this.from), last = this.bucket(level, this.to - 1e-9);
    const heights = [];
    for (let at = first; at <= last; at++) if (level.steps[at]) heights.push(level.p95_us[at]);
    heights.sort((one, other) => one - other);
    this.top = Math.max(1, (heights[Math.floor(heights.length * 0.97)] ?? 1) * 1.18) / 1e6;
    let marked = -Infinity;
    const base = TOP + STEPS, y = (us) => base - Math.min(1.02, us / 1e6 / this.top) * (STEPS - 14);
    for (let at = first; at <= last; at++) {
      const steps = level.steps[at], x = this.x(level.starts[at]), wide = this.x(level.starts[at + 1]) - x;
      if (!steps) continue;
      const gap = wide > 5 ? 1 : 0;
      let below = 0;
      for (const part of this.parts) {
        const value = level.parts_us[part][at] / steps;
        if (!value) continue;
        const up = y(below + value), down = y(below);
        pen.fillStyle = this.colours[part];
        pen.fillRect(x, up, Math.max(wide - gap, 0.6), down - up);
        if (this.waiting.has(part) && down - up > 3) {
          pen.fillStyle = this.hatch;
          pen.fillRect(x, up, Math.max(wide - gap, 0.6), down - up);
        }
        below += value;
      }
      const middle = x + wide / 2;
      if (steps > 1) {
        pen.globalAlpha = wide > 3 ? 0.8 : 0.25;
        pen.fillStyle = this.theme.soft;
        pen.fillRect(middle - 0.5, y(level.most_us[at]), 1, Math.max(0, y(level.p95_us[at]) - y(level.most_us[at])));
        pen.globalAlpha = 1;
      }
      if (level.most_us[at] / 1e6 > BEYOND * this.top && middle - marked > 9) {
        marked = middle;
        pen.fillStyle = this.theme.ink;
        pen.beginPath(); pen.moveTo(middle - 3, TOP + 14); pen.lineTo(middle + 3, TOP + 14); pen.lineTo(middle, TOP + 8); pen.fill();
      }
    }
    this.drawQuantiles(pen, first, last, y);
  }

  drawQuantiles(pen, first, last, y) {
    const level = this.level;
    if (!level.steps.some((steps) => steps > 1)) {
      this.drawWholeQuantiles(pen, first, last, y);
      return;
    }
    for (const [name, dash] of [["median_us", []], ["p95_us", [4, 3]]]) {
      pen.beginPath();
      for (let at = first; at <= last; at++) {
        if (!level.steps[at]) continue;
        const up = y(level[name][at]);
        pen.lineTo(this.x(level.starts[at]), up);
        pen.lineTo(this.x(level.starts[at + 1]), up);
      }
      pen.setLineDash(dash);
      pen.lineWidth = 3; pen.strokeStyle = this.theme.card; pen.globalAlpha = 0.6; pen.stroke();
      pen.lineWidth = 1.25; pen.strokeStyle = this.theme.ink; pen.globalAlpha = 1; pen.stroke();
    }
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }

  // Where every step has a column, two lines for all that are shown.
  drawWholeQuantiles(pen, first, last, y) {
    const lengths = [];
    for (let at = first; at <= last; at++) if (this.level.steps[at]) lengths.push(this.level.length_us[at]);
    if (lengths.length < 3) return;
    lengths.sort((one, other) => one - other);
    for (const [share, dash] of [[0.5, []], [0.95, [4, 3]]]) {
      const up = Math.round(y(lengths[Math.floor(share * (lengths.length - 1))])) + 0.5;
      pen.setLineDash(dash);
      pen.strokeStyle = this.theme.ink;
      pen.beginPath(); pen.moveTo(LEFT, up); pen.lineTo(this.width - RIGHT, up); pen.stroke();
    }
    pen.setLineDash([]);
  }

  drawScales(pen) {
    pen.fillStyle = this.theme.soft;
    pen.textAlign = "right";
    const step = roundStep(this.top, 4);
    for (let value = 0; value <= this.top; value += step) {
      const y = TOP + STEPS - (value / this.top) * (STEPS - 14);
      pen.fillText(short(value), LEFT - 8, y);
    }
  }

  drawLane(pen, lane, y) {
    const names = Object.keys(lane.series), colours = ["accent", "c-turn", "c-input", "c-collectives", "c-own", "c-checkpoint"].map((name) => this.theme[name]);
    const from = this.start, bin = this.picture.bin_s;
    const most = lane.unit === "frac" ? 1 : lane.most ?? Math.max(1, ...names.flatMap((name) => lane.series[name].map((value) => value ?? 0)));
    const peak = lane.unit === "frac" ? 1 : Math.max(most, ...names.flatMap((name) => lane.series[name].map((value) => value ?? 0)));
    pen.fillStyle = this.theme.faint;
    pen.fillRect(LEFT, y, this.width, LANE);
    const first = Math.max(0, Math.floor((this.from - from) / bin)), last = Math.min(lane.series[names[0]].length - 1, Math.ceil((this.to - from) / bin));
    const below = {};
    names.forEach((name, number) => {
      pen.fillStyle = pen.strokeStyle = colours[number % colours.length];
      pen.setLineDash(!lane.is_stacked && number ? [5, 3] : []);
      pen.beginPath();
      let open = false;
      for (let at = first; at <= last; at++) {
        const value = lane.series[name][at];
        if (value === null) { open = false; continue; }
        const x = this.x(from + at * bin), next = this.x(from + (at + 1) * bin), high = (value / peak) * LANE;
        if (lane.is_stacked) {
          const under = below[at] ?? 0;
          pen.fillRect(x, y + LANE - under - high, Math.max(next - x, 0.7), high);
          if (number) { const ink = pen.fillStyle; pen.fillStyle = this.hatch; pen.fillRect(x, y + LANE - under - high, Math.max(next - x, 0.7), high); pen.fillStyle = ink; }
          below[at] = under + high;
        } else {
          const up = y + LANE - high;
          if (open) pen.lineTo(x, up); else pen.moveTo(x, up);
          pen.lineTo(next, up);
          open = true;
        }
      }
      if (!lane.is_stacked) { pen.lineWidth = 1.75; pen.stroke(); pen.lineWidth = 1; }
    });
    pen.setLineDash([]);
    this.nameLane(pen, lane, names, colours, y, most);
  }

  nameLane(pen, lane, names, colours, y, most) {
    pen.textAlign = "left";
    let x = LEFT + 2;
    const write = (words, colour) => { pen.fillStyle = colour; pen.fillText(words, x, y - 10); x += pen.measureText(words).width + 6; };
    write(`${this.words[lane.name] ?? lane.name} ${lane.which}`.trim(), this.theme.ink);
    names.forEach((name, number) => {
      pen.fillStyle = colours[number % colours.length];
      const dashed = !lane.is_stacked && number;
      if (dashed) { pen.fillRect(x + 4, y - 11, 5, 2.5); pen.fillRect(x + 12, y - 11, 5, 2.5); } else pen.fillRect(x + 4, lane.is_stacked ? y - 14 : y - 11, 13, lane.is_stacked ? 8 : 2.5);
      x += 22;
      write(this.words[name] ?? name, this.theme.soft);
    });
    if (lane.unit !== "frac") { x += 4; write(`(${lane.most ? "of" : "up to"} ${laneWords[lane.unit](most)})`, this.theme.soft); }
    else if (lane.most && lane.is_stacked) { x += 4; write(`(${count(lane.most, "process").replace(/processs$/, "processes")})`, this.theme.soft); }
  }

  drawMarks(pen) {
    pen.textAlign = "center";
    const bottom = this.height - FOOT;
    if (this.picture.judged) {
      const [from, to] = this.picture.judged.map((time) => this.x(time));
      pen.fillStyle = this.theme.accent;
      pen.fillRect(from, TOP - 3, to - from, 3);
    }
    let free = -Infinity;
    for (const moment of this.picture.moments) {
      const x = Math.round(this.x(moment.at_s)) + 0.5;
      if (x < LEFT || x > this.width - RIGHT) continue;
      pen.strokeStyle = this.theme.ink;
      pen.globalAlpha = moment.kind === "fix" ? 0.9 : 0.3;
      pen.setLineDash([2, 3]);
      pen.beginPath(); pen.moveTo(x, TOP); pen.lineTo(x, bottom); pen.stroke();
      pen.setLineDash([]);
      pen.globalAlpha = 1;
      if (x - free < 15 && moment.kind !== "fix") continue;
      free = x;
      pen.fillStyle = moment.kind === "fix" ? this.theme.accent : this.theme.soft;
      const sign = Math.min(Math.max(x, LEFT + 8), this.width - RIGHT - 8);
      pen.beginPath(); pen.arc(sign, TOP - 12, 7.5, 0, 7); pen.fill();
      pen.fillStyle = this.theme.card;
      pen.fillText(SIGNS[moment.kind], sign, TOP - 11.5);
    }
    if (this.selected && (this.selected[0] > this.from || this.selected[1] < this.to)) {
      const [from, to] = this.selected.map((time) => this.x(time));
      pen.globalAlpha = 0.16; pen.fillStyle = this.theme.ink; pen.fillRect(from, TOP, to - from, bottom - TOP);
      pen.globalAlpha = 1; pen.strokeStyle = this.theme.ink; pen.strokeRect(from + 0.5, TOP + 0.5, to - from - 1, bottom - TOP - 1);
    }
    if (this.cursor !== null) {
      const x = Math.round(this.x(this.cursor)) + 0.5;
      pen.strokeStyle = this.theme.ink;
      pen.beginPath(); pen.moveTo(x, TOP); pen.lineTo(x, bottom); pen.stroke();
    }
  }

  point(event) {
    if (this.cursor === null || !this.level) return;
    const level = this.level, at = this.bucket(level, this.cursor), steps = level.steps[at];
    const lines = [];
    if (steps) {
      lines.push([`${steps > 1 ? "mean " : ""}${this.picture.per}`, duration(level.length_us[at] / steps / 1e6)]);
      if (steps > 1) lines.push(["shortest to longest", `${duration(level.least_us[at] / 1e6)} to ${duration(level.most_us[at] / 1e6)}`]);
      const parts = this.parts.filter((part) => level.parts_us[part][at] / level.length_us[at] > 0.005);
      for (const part of parts) lines.push([this.words[part] ?? part, duration(level.parts_us[part][at] / steps / 1e6)]);
    }
    const bin = Math.floor((this.cursor - this.start) / this.picture.bin_s);
    for (const lane of this.picture.lanes) {
      const known = Object.entries(lane.series).filter(([, values]) => values[bin] !== null && values[bin] !== undefined);
      if (known.length) lines.push([`${this.words[lane.name] ?? lane.name} ${lane.which}`.trim(), known.map(([name, values]) => `${laneWords[lane.unit](values[bin])} ${this.words[name] ?? name}`).join(", ")]);
    }
    const title = `${duration(this.cursor)}${steps > 1 ? `, ${count(steps, this.picture.per)}` : ""}`;
    const list = make("dl", {}, ...lines.flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })]));
    this.hint.replaceChildren(make("b", { textContent: title }), list);
    this.hint.hidden = false;
    const x = this.x(this.cursor), isRight = x > this.width / 2;
    this.hint.style.left = isRight ? "auto" : `${x + 14}px`;
    this.hint.style.right = isRight ? `${this.width - x + 14}px` : "auto";
    this.hint.style.top = `${event ? Math.max(0, Math.min(this.height - 200, event.clientY - this.canvas.getBoundingClientRect().top - 40)) : 40}px`;
    if (!event) this.spoken.textContent = `${title}: ${lines.map((line) => line.join(" ")).join("; ")}`;
  }
}

for (const element of document.querySelectorAll(".story")) new Story(element);
