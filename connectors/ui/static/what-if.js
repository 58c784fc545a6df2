// Writes a slider's stop into the field beside it while it is moved. The server does the rest, with or without this.
"use strict";
document.addEventListener("input", (event) => {
  const slider = event.target;
  if (!(slider instanceof HTMLInputElement) || slider.type !== "range" || !slider.dataset.stops) return;
  const text = slider.dataset.stops.split("|")[Number(slider.value)];
  slider.setAttribute("aria-valuetext", text);
  const field = document.getElementById(slider.dataset.field);
  if (field) field.value = text;
});
