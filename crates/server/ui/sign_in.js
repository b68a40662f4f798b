// The token of the person at the dashboard. It stays in memory, or by choice in the session storage of this tab.

import { h, text } from "./dom.js";

const STORED = "convoke-token";

let token = sessionStorage.getItem(STORED) ?? "";
let asking = null;

/** The headers that carry the token. */
export const credentials = () => (token ? { authorization: `Bearer ${token}` } : {});

export const isSignedIn = () => token !== "";

/** Forgets the token. */
export function signOut() {
  sessionStorage.removeItem(STORED);
  location.reload();
}

/** Asks for a token unless a newer one than `used` is known. Resolves when the request can be sent again. */
export function signIn(used, message) {
  if ((used.authorization ?? "") !== (credentials().authorization ?? "")) return Promise.resolve();
  asking ??= ask(message).finally(() => (asking = null));
  return asking;
}

function ask(message) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", "aria-label": "Token" });
    const keep = h("input", { type: "checkbox" });
    const explanation = h("p", { class: "sign-in-reason" });
    text(explanation, message);
    const dialog = h(
      "dialog",
      { class: "sign-in", "aria-label": "Sign in" },
      h("h2", null, "Sign in"),
      explanation,
      input,
      h("label", null, keep, " Keep the token until this tab closes"),
      h("button", { type: "button", onclick: done }, "Sign in"),
    );
    function done() {
      const entered = input.value.trim();
      if (!entered) return;
      token = entered;
      sessionStorage.removeItem(STORED);
      if (keep.checked) sessionStorage.setItem(STORED, token);
      dialog.remove();
      resolve();
    }
    input.addEventListener("keydown", (event) => event.key === "Enter" && done());
    // Without a token there is nothing to show.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
