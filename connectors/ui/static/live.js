/* Renews what an open page shows, as the worker sends it: what did not change stays as it is, and so do the focus, what
   is scrolled or selected, what is typed, and what is folded open. Without this script the page stays as it was loaded. */
(() => {
  "use strict";
  const live = document.getElementById("live");
  const still = document.getElementById("still");
  if (!live || !live.dataset.stream || !window.EventSource || !window.Idiomorph) return;

  const AGAIN_MS = 30000; // a worker that has refused has 64 open pages, or is about to end
  const RELOAD_MS = 5000; // a page that is over as soon as it is loaded must not load again in a loop
  const SILENT_MS = 6000; // a stream that ends is asked for again after 3 s, which nobody has to be told
  const callbacks = {
    // What a person types or chooses is his; the hidden token of a form is the worker's.
    beforeNodeMorphed: (old) => !(old.matches && old.matches("input:not([type=hidden]), textarea, select")),
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.localName === "details"),
  };
  let source = null;
  let timer = 0;
  let silence = 0; // from the first request of a row that failed, until one is answered

  function say(text) {
    if (still.textContent !== text) still.textContent = text;
  }

  function change(make) {
    const focused = document.activeElement;
    make();
    if (window.htmx) window.htmx.process(live);
    if (focused && focused !== document.body && !focused.isConnected) {
      // The button is gone: go on from here with the keyboard, not from the top of the page.
      document.getElementById("main").focus({ preventScroll: true });
    }
  }

  function whole(html) {
    change(() => window.Idiomorph.morph(live, html, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks }));
  }

  function parts(all) {
    change(() => {
      for (const html of all) {
        const made = document.createElement("template");
        made.innerHTML = html;
        const part = made.content.firstElementChild;
        const old = document.getElementById(part.id);
        if (old) window.Idiomorph.morph(old, part, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
      }
    });
  }

  function silent() {
    say("The worker does not answer. What you see is as it was; the page goes on by itself.");
    const health = document.getElementById("health");
    health.className = "pill bad"; // the worker sends it again as it is, once it answers
    health.textContent = "worker does not answer";
  }

  function clear() {
    clearTimeout(timer);
    clearTimeout(silence);
    silence = 0;
  }

  function stop() {
    clear();
    if (source) source.close();
    source = null;
  }

  function later(ms, what) {
    clearTimeout(timer);
    timer = setTimeout(what, ms);
  }

  function failed() {
    if (source && source.readyState === EventSource.CLOSED) {
      stop();
      say("The worker does not renew this page now. That is tried again; or load the page again.");
      later(AGAIN_MS, start);
    } else {
      silence = silence || setTimeout(silent, SILENT_MS);
    }
  }

  function start() {
    if (source || document.hidden) return;
    source = new EventSource(live.dataset.stream + location.search);
    source.onopen = () => {
      clear();
      say("");
    };
    source.onerror = failed;
    source.addEventListener("whole", (each) => whole(JSON.parse(each.data)));
    source.addEventListener("parts", (each) => parts(JSON.parse(each.data)));
    source.addEventListener("over", () => {
      stop();
      // performance.now() counts from when the page was loaded
      later(Math.max(0, RELOAD_MS - performance.now()), () => location.reload());
    });
  }

  // A browser has six connections to a worker: a page that nobody sees leaves its own to others.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  start();
})();
