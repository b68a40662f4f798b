// Requests to the node that served this page.

import { credentials, signIn } from "./sign_in.js";

const TIMEOUT = 6000;

/** An error that the node returned, or no response at all (`status` 0). */
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the node returned status ${status}`);
    this.status = status;
    this.code = error?.code ?? "";
    this.field = error?.field ?? "";
    /** In a filter: `{line, column}`, counted from 1. */
    this.position = error?.position ?? null;
    /** With COMPACTED: the oldest revision of history. */
    this.known = error?.known ?? 0;
  }
}

export async function errorOf(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body?.error);
}

async function request(path, signal, method = "GET") {
  const signals = [AbortSignal.timeout(TIMEOUT)];
  if (signal) signals.push(signal);
  const headers = credentials();
  let response;
  try {
    response = await fetch(path, { method, headers, signal: AbortSignal.any(signals), cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { message: "the node does not respond" });
  }
  if (response.status === 401) {
    await signIn(headers, (await errorOf(response)).message);
    if (signal?.aborted) throw new ApiError(401, null);
    return request(path, signal, method);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export const get = async (path, signal) => (await request(path, signal)).json();
export const send = async (method, path, signal) => (await request(path, signal, method)).json();
export const getText = async (path, signal) => (await request(path, signal)).text();
