// Questions to the node that served this page.

const PATIENCE = 6000;

/** A refusal in the node's own words, or no answer at all (`status` 0). */
export class Refusal extends Error {
  constructor(status, error) {
    super(error?.message ?? `the node answered with status ${status}`);
    this.status = status;
    this.code = error?.code ?? "";
    this.field = error?.field ?? "";
  }
}

export async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new Refusal(response.status, body?.error);
}

async function ask(path, signal) {
  const signals = [AbortSignal.timeout(PATIENCE)];
  if (signal) signals.push(signal);
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.any(signals), cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, { message: "the node does not answer" });
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

export const get = async (path, signal) => (await ask(path, signal)).json();
export const getText = async (path, signal) => (await ask(path, signal)).text();

let paths;

/** Whether the node serves a path of the interface at all: it may have parts switched off, or be older than this page. */
export async function serves(path) {
  paths ??= get("/api/v1/openapi.json").then((document) => new Set(Object.keys(document.paths)));
  try {
    return (await paths).has(path);
  } catch {
    paths = undefined;
    return false;
  }
}
