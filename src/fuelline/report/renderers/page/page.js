"use strict";
// What every page has: buttons that copy, and a list of contents that says where the reader is.
// All text enters the page as text; nothing here makes markup of a string.

const make = (name, properties = {}, ...inner) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...inner);
  return element;
};

const dataOf = (element) => JSON.parse(document.getElementById(element.dataset.from).textContent);

const copyText = async (words) => {
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    const area = make("textarea", { value: words, readOnly: true });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  await copyText(button.previousElementSibling.textContent);
  button.textContent = "Copied";
  button.classList.add("done");
  setTimeout(() => {
    button.textContent = "Copy";
    button.classList.remove("done");
  }, 1600);
});

// Paper cannot be pressed: pictures bring their tables, and what is folded away is shown.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => { for (const each of opened) each.open = false; });

const links = new Map([...document.querySelectorAll(".bar li a")].map((link) => [link.hash.slice(1), link]));
const seen = new Set();
if (links.size) {
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target.id);
      else seen.delete(target.id);
    }
    const first = [...links.keys()].find((place) => seen.has(place));
    for (const [place, link] of links) {
      if (place === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -60% 0px" });
  for (const place of links.keys()) watcher.observe(document.getElementById(place));
}
