import { setTimeout } from "node:timers/promises";
import { NoResponseError, retryAfterSecs } from "./errors.js";

/** Requests of a call after the first one. */
export const RETRIES_MAX = 3;
/** Wait before the first retry, which doubles with each further one. Up to half of it is left out at random. */
const BACKOFF_MS = 500;
/** The longest `Retry-After` that a call waits for. After a longer one, it fails at once. */
const RETRY_AFTER_SECS_MAX = 10;
/** Time of one request. The service answers within 30 s, and a read of the event feed with `wait` within 32 s. */
export const TIMEOUT_MS = 40_000;

/** Returns a `fetch` that repeats a request until it has a response that more requests would not change. */
export function fetchWithRetries(retriesMax: number, timeoutMs: number): (request: Request) => Promise<Response> {
  return async (request) => {
    for (let retries = 0; ; retries++) {
      let waitMs = BACKOFF_MS * 2 ** retries * (1 - Math.random() / 2);
      try {
        const response = await attempt(request, timeoutMs);
        const after = retryAfterSecs(response) ?? 0;
        if (retries >= retriesMax || !isRetried(response) || after > RETRY_AFTER_SECS_MAX) return response;
        if (after > 0) waitMs = after * 1_000;
      } catch (error) {
        // The caller's own signal.
        if (request.signal.aborted) throw error;
        if (retries >= retriesMax) {
          throw new NoResponseError(`${request.method} ${request.url}: no response`, request, { cause: error });
        }
      }
      await setTimeout(waitMs, undefined, { signal: request.signal });
    }
  };
}

/** Sends the request once, and returns the response when its body has arrived. */
async function attempt(request: Request, timeoutMs: number): Promise<Response> {
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]);
  const response = await fetch(request.clone(), { signal });
  await response.clone().arrayBuffer();
  return response;
}

/** After these, the same request can succeed. 409 has `Retry-After` while the first request with the same key runs. */
function isRetried({ status, headers }: Response): boolean {
  return status === 408 || status === 429 || status >= 500 || (status === 409 && headers.has("Retry-After"));
}
