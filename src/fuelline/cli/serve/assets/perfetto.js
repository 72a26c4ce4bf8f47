"use strict";
// Hands a run's tracks to Perfetto's own page, as it asks for them: it answers PING with PONG once it
// can take them (perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).

const PERFETTO = "https://ui.perfetto.dev", TRIES_MS = 100, LONGEST_MS = 60000;
const tell = (words) => { document.getElementById("said").textContent = words; };

document.getElementById("perfetto").addEventListener("click", async () => {
  const tab = window.open(PERFETTO);
  if (!tab) { tell("The browser did not open another tab. Allow that, or download the file."); return; }
  tell("The tracks are being made");
  const answer = await fetch("?as=file");
  if (!answer.ok) { tell("There are no tracks of this run. Its report may say why."); return; }
  const buffer = await answer.arrayBuffer();
  tell("Waiting for ui.perfetto.dev");
  const asking = setInterval(() => tab.postMessage("PING", PERFETTO), TRIES_MS);
  const end = (words) => { clearInterval(asking); clearTimeout(late); window.removeEventListener("message", hear); tell(words); };
  const late = setTimeout(() => end("ui.perfetto.dev does not answer. Download the file and open it there."), LONGEST_MS);
  const hear = (event) => {
    if (event.origin !== PERFETTO || event.data !== "PONG") return;
    tab.postMessage({ perfetto: { buffer, title: document.getElementById("main").dataset.run } }, PERFETTO);
    end("Opened in the other tab");
  };
  window.addEventListener("message", hear);
});
