// Repeats a request while the page is shown and its tab is visible.

import { text } from "./dom.js";

const AGAIN = 3000;

/**
 * Calls `ask(signal)` now and again after a while, and shows its errors in `problem`. `first(ready)` calls it at once
 * when it becomes possible; `again()` calls it at once.
 */
export function poller(ask, problem) {
  const stop = new AbortController();
  let timer = 0;
  let started = false;
  async function again() {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        await ask(stop.signal);
        problem.hidden = true;
      } catch (error) {
        if (stop.signal.aborted) return;
        text(problem, error.message);
        problem.hidden = false;
      }
    }
    clearTimeout(timer);
    timer = setTimeout(again, AGAIN);
  }
  return {
    again,
    first(ready) {
      if (!ready || started) return;
      started = true;
      again();
    },
    stop() {
      stop.abort();
      clearTimeout(timer);
    },
  };
}
