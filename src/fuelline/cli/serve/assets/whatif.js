"use strict";
// On a report that is served, combinations that the file does not hold are asked of the model.

model.ask = (turned) =>
  fetch(`?${new URLSearchParams({ as: "whatif", ...turned })}`).then((response) => (response.ok ? response.json() : null), () => null);
