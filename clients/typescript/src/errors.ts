import type { FieldError, Problem } from "./schema.js";

/** The characters of a response without a problem document that a message quotes. */
const TEXT_CHARS_MAX = 200;

/**
 * A call without a result.
 *
 * To repeat a `POST` or `PATCH` that may have been carried out, send the same body with `idempotencyKey` within 24 hours.
 */
export class PayferryError extends Error {
  readonly idempotencyKey: string | undefined;

  constructor(message: string, request: Request, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.idempotencyKey = request.headers.get("Idempotency-Key") ?? undefined;
  }
}

/** No response after all retries. The request may have been carried out. `cause` is the last error. */
export class NoResponseError extends PayferryError {}

/**
 * A response that is not a success.
 *
 * `code` is stable and meant for programs, and `errors` names every invalid field. After a response that does not come from the
 * service, such as that of a proxy, `code` is `unexpected_response`.
 */
export class ProblemError extends PayferryError {
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly errors: FieldError[];
  readonly requestId: string | undefined;
  readonly retryAfterSecs: number | undefined;

  constructor(request: Request, response: Response, body: string) {
    const { code = "unexpected_response", detail = body.slice(0, TEXT_CHARS_MAX), errors = [] } = problem(body);
    const requestId = response.headers.get("X-Request-Id") ?? undefined;
    const fields = errors.map(({ field, message }) => `; ${field} ${message}`).join("");
    super(`${detail}${fields} (${response.status} ${code}${requestId ? `, request ${requestId}` : ""})`, request);
    this.status = response.status;
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.requestId = requestId;
    this.retryAfterSecs = retryAfterSecs(response);
  }
}

/** The seconds of the header `Retry-After`. */
export function retryAfterSecs(response: Response): number | undefined {
  const header = response.headers.get("Retry-After");
  return header !== null && /^\d+$/.test(header) ? Number(header) : undefined;
}

function problem(body: string): Partial<Problem> {
  try {
    return (JSON.parse(body) as Partial<Problem> | null) ?? {};
  } catch {
    return {};
  }
}
