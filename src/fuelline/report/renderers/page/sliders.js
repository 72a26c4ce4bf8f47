"use strict";
// What if, by hand: every answer was computed by the model when the page was written. Nothing is
// computed here; what is not in the table is a command away, or asked of the server that shows the page.

const model = { ask: null };  // set where there is somebody to ask

class Sliders {
  constructor(element) {
    Object.assign(this, dataOf(element));
    const stage = element.querySelector(".stage");
    this.inputs = this.sliders.map((slider, number) => this.slider(slider, number));
    const fields = make("fieldset", {}, make("legend", { className: "skip", textContent: "Settings to try" }), ...this.inputs.map(({ label }) => label));
    const presets = this.presets.map(([name, places]) => make("button", { type: "button", textContent: name, onclick: () => this.set(places) }));
    fields.prepend(make("div", { className: "tools" }, ...presets));
    this.output = make("div", { className: "answer", "aria-live": "polite" });
    stage.append(fields, this.output);
    const known = Object.values(this.answers).filter(([value]) => value !== null);
    this.most = Math.max(2, ...known.map((answer) => answer[4]));
    this.update();
  }

  slider(slider, number) {
    const shown = make("output");
    const input = make("input", { type: "range", min: 0, max: slider.shown.length - 1, step: 1, value: slider.now, oninput: () => this.update() });
    input.setAttribute("data-knob", slider.option);
    input.id = `slider-${number}`;
    const label = make("label", { htmlFor: input.id }, make("span", { textContent: slider.name }), shown, input);
    return { slider, input, shown, label };
  }

  set(places) {
    this.inputs.forEach(({ input }, number) => { input.value = places[number]; });
    this.update();
  }

  update() {
    const places = this.inputs.map(({ input }) => Number(input.value));
    let command = this.command;
    this.inputs.forEach(({ slider, input, shown }, number) => {
      const place = places[number], isNow = place === slider.now;
      shown.replaceChildren(slider.shown[place], ...(isNow ? [make("small", { textContent: " as recorded" })] : []));
      if (isNow && slider.shown[place] === "as recorded") shown.replaceChildren(make("small", { textContent: "as recorded" }));
      input.setAttribute("aria-valuetext", slider.shown[place]);
      if (!isNow) command += ` ${slider.option} ${slider.typed[place]}`;
    });
    const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy the command");
    const copied = make("div", { className: "copied" }, make("code", { className: "words" }, ...command.split(" ").flatMap((word) => [make("span", { textContent: word }), " "]).slice(0, -1)), button);
    this.output.replaceChildren(...this.say(places), copied);
    clearTimeout(this.asking);
    if (model.ask && !this.isNow(places) && !this.answers[places.join(",")]) this.asking = setTimeout(() => this.ask(places), 300);
  }

  // Of the server: the same command, whose answer is kept like those of the file.
  async ask(places) {
    const turned = {};
    this.inputs.forEach(({ slider }, number) => { if (places[number] !== slider.now) turned[slider.option.slice(2)] = slider.typed[places[number]]; });
    const answer = await model.ask(turned);
    this.answers[places.join(",")] = answer ?? [null, "cannot tell", "the server has no answer; the command below says why"];
    this.update();
  }

  isNow(places) { return this.inputs.every(({ slider }, number) => places[number] === slider.now); }

  say(places) {
    const answer = this.answers[places.join(",")];
    if (this.isNow(places)) return [this.big(`${this.now.text} samples/s`, "as recorded, by the model; move a slider", this.now.value, "samples_per_s")];
    if (!answer && model.ask) return [this.big("…", "the model is asked", "", "none")];
    if (!answer) return [this.big("Ask the model", "this combination is not in this file; the command answers it", "", "none")];
    const [value, words, then, low, high, pace, paceWords] = answer;
    if (value === null) return [this.big("Cannot tell", then, "", "missing")];
    const rate = make("p", { className: "pace" }, make("b", { textContent: paceWords }), ` samples/s instead of ${this.now.text}`, make("br"), `then the limit is ${then}`);
    return [this.big(words, "predicted speedup", value, "speedup"), this.ruler(value, low, high), rate];
  }

  big(words, below, value, kind) {
    const number = make("data", { textContent: words, className: "number" });
    number.setAttribute("value", value);
    number.setAttribute("data-kind", kind);
    return make("p", { className: "speedup" }, number, make("small", { textContent: below }));
  }

  ruler(value, low, high) {
    const space = "http://www.w3.org/2000/svg", ruler = document.createElementNS(space, "svg");
    ruler.setAttribute("viewBox", "0 0 300 34");
    ruler.setAttribute("aria-hidden", "true");
    const x = (speedup) => 4 + (292 * Math.min(speedup, this.most)) / this.most;
    const add = (name, attributes, words) => {
      const element = document.createElementNS(space, name);
      for (const [key, each] of Object.entries(attributes)) element.setAttribute(key, each);
      if (words) element.textContent = words;
      ruler.append(element);
    };
    add("line", { x1: 4, x2: 296, y1: 12, y2: 12, class: "scale", "stroke-width": 2, "stroke-linecap": "round" });
    add("line", { x1: x(1), x2: x(1), y1: 5, y2: 19, class: "one", "stroke-width": 1.5 });
    add("text", { x: x(1), y: 31, "text-anchor": "middle" }, "now");
    add("line", { x1: x(low ?? value), x2: x(high ?? value), y1: 12, y2: 12, class: "span", "stroke-width": 6, "stroke-linecap": "round", opacity: 0.45 });
    add("circle", { cx: x(value), cy: 12, r: 6, class: "dot" });
    return ruler;
  }
}

for (const element of document.querySelectorAll(".sliders")) new Sliders(element);
