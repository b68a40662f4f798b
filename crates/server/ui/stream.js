// Server-sent events over fetch. `EventSource` hides why a stream was rejected, keeps running in hidden tabs (browsers
// allow six connections to a node, all tabs together), and delivers ten thousand events in ten thousand tasks.

import { credentials, signIn } from "./sign_in.js";
import { ApiError, errorOf } from "./api.js";

const RETRY_MIN = 400;
const RETRY_MAX = 5000;
/** The node sends a comment every ten seconds. */
const SILENCE = 25000;
/** Events delivered in one task. */
const SLICE = 200;

/** Lets the browser run other tasks. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

/**
 * Reads a stream until it is closed, and resumes it with Last-Event-ID after a lost connection.
 * `events(batch)` gets `{event, data}` objects. `state(name, error)` gets "live", "waiting" or "rejected"; a rejected
 * stream ends.
 */
export class Stream {
  #path;
  #events;
  #state;
  #last = "";
  #abort = null;
  #timer = 0;
  #retry = RETRY_MIN;
  #closed = false;
  #visible = () => this.#follow();

  constructor(path, { events, state }) {
    this.#path = path;
    this.#events = events;
    this.#state = state ?? (() => {});
    document.addEventListener("visibilitychange", this.#visible);
    this.#follow();
  }

  close() {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#visible);
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  /** Connects while the tab is visible, disconnects while it is hidden. */
  #follow() {
    clearTimeout(this.#timer);
    if (document.hidden) {
      this.#abort?.abort();
      this.#abort = null;
    } else if (!this.#abort && !this.#closed) {
      this.#run();
    }
  }

  async #run() {
    const abort = new AbortController();
    this.#abort = abort;
    try {
      await this.#read(abort);
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        this.#closed = true;
        this.#state("rejected", error);
      }
    }
    if (this.#abort !== abort) return;
    this.#abort = null;
    if (this.#closed || document.hidden) return;
    this.#state("waiting");
    this.#timer = setTimeout(() => this.#follow(), this.#retry * (0.75 + Math.random() / 2));
    this.#retry = Math.min(this.#retry * 2, RETRY_MAX);
  }

  async #read(abort) {
    const shown = credentials();
    const headers = { accept: "text/event-stream", ...shown };
    if (this.#last) headers["last-event-id"] = this.#last;
    let silence = setTimeout(() => abort.abort(), SILENCE);
    try {
      const response = await fetch(this.#path, { headers, signal: abort.signal, cache: "no-store" });
      if (response.status === 401) {
        // Ends this attempt; the next one carries the new token.
        clearTimeout(silence);
        return await signIn(shown, (await errorOf(response)).message);
      }
      if (!response.ok) throw await errorOf(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      this.#retry = RETRY_MIN;
      this.#state("live");
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        // A large snapshot must not block the page.
        for (let from = 0; from < blocks.length; from += SLICE) {
          if (from > 0) await pause();
          if (abort.signal.aborted) return;
          this.#deliver(blocks.slice(from, from + SLICE));
        }
      }
    } finally {
      clearTimeout(silence);
    }
  }

  #deliver(blocks) {
    const batch = [];
    for (const block of blocks) {
      let event = "message";
      let data = null;
      for (const line of block.split("\n")) {
        if (line.startsWith("data: ")) data = line.slice(6);
        else if (line.startsWith("event: ")) event = line.slice(7);
        else if (line.startsWith("id: ")) this.#last = line.slice(4);
      }
      if (data !== null) batch.push({ event, data: JSON.parse(data) });
    }
    if (batch.length > 0) this.#events(batch);
  }
}
