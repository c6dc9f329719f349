import type { Client, ClientPathsWithMethod, MaybeOptionalInit, MethodResponse } from "openapi-fetch";
import createClient from "openapi-fetch";
import { ProblemError } from "./errors.js";
import { RETRIES_MAX, TIMEOUT_MS, fetchWithRetries } from "./retry.js";
import type { paths } from "./schema.js";

const IDEMPOTENCY_KEY = "Idempotency-Key";

export interface PayferryOptions {
  /** The URL of the service, such as `http://127.0.0.1:8080`. */
  baseUrl: string;
  /** `sk_test_...` in the sandbox, `sk_live_...` in production. */
  apiKey: string;
  /** Requests of a call after the first one; 3 by default. */
  retriesMax?: number;
  /** Time of one request; 40 s by default. */
  timeoutMs?: number;
}

type Api = Client<paths, "application/json">;
type Method = "get" | "put" | "post" | "patch" | "delete";
type Path<M extends Method> = ClientPathsWithMethod<Api, M>;
/** How a body is read: as JSON, unless named. */
type ParseAs = "json" | "text" | "blob" | "arrayBuffer";
type Init<M extends Method, P extends Path<M>, A extends ParseAs> = MaybeOptionalInit<paths[P], M> extends infer I
  ? undefined extends I
    ? [init?: NonNullable<I> & { parseAs?: A }]
    : [init: I & { parseAs?: A }]
  : never;
/** Sends a request to a path, and returns the body of the response. Throws a `PayferryError`. */
type Call<M extends Method> = <P extends Path<M>, A extends ParseAs = "json">(
  path: P,
  ...init: Init<M, P, A>
) => Promise<MethodResponse<Api, M, P, { parseAs: A }>>;

/** The paths of lists: their pages have cursors. */
type ListPath = { [P in Path<"get">]: "next_cursor" extends keyof MethodResponse<Api, "get", P> ? P : never }[Path<"get">];
type Page<P extends ListPath> = Required<MethodResponse<Api, "get", P>>;
/** The items of a page are its only array. */
type Item<P extends ListPath> = { [K in keyof Page<P>]: Page<P>[K] extends (infer I)[] ? I : never }[keyof Page<P>];

/** A client of one account. Its methods take paths of the service, with parameters and bodies as in `openapi-fetch`. */
export class Payferry {
  readonly get: Call<"get">;
  readonly put: Call<"put">;
  readonly post: Call<"post">;
  readonly patch: Call<"patch">;
  readonly delete: Call<"delete">;

  constructor({ baseUrl, apiKey, retriesMax = RETRIES_MAX, timeoutMs = TIMEOUT_MS }: PayferryOptions) {
    const headers = { Authorization: `Bearer ${apiKey}` };
    const fetch = fetchWithRetries(retriesMax, timeoutMs);
    const client: Api = createClient({ baseUrl, headers, redirect: "manual", fetch, bodySerializer });
    client.use({
      onRequest({ request }) {
        const isChange = request.method === "POST" || request.method === "PATCH";
        if (isChange && !request.headers.has(IDEMPOTENCY_KEY)) request.headers.set(IDEMPOTENCY_KEY, crypto.randomUUID());
      },
      async onResponse({ request, response }) {
        if (!response.ok) throw new ProblemError(request, response, await response.text());
      },
    });
    const call = <M extends Method>(method: M) =>
      (async (path: never, init: never) => (await client.request(method, path, described(init))).data) as unknown as Call<M>;
    this.get = call("get");
    this.put = call("put");
    this.post = call("post");
    this.patch = call("patch");
    this.delete = call("delete");
  }

  /** Iterates over the items of all pages of a list. `limit` is the number of items of one request. */
  async *list<P extends ListPath>(path: P, ...init: Init<"get", P, "json">): AsyncGenerator<Item<P>, void, undefined> {
    const get = this.get as unknown as (path: string, init: object) => Promise<Record<string, unknown>>;
    const { params: { query: first = {}, ...params } = {}, ...options } = (init[0] ?? {}) as ListInit;
    for (let query = first; ; ) {
      const page = await get(path, { ...options, params: { ...params, query } });
      yield* Object.values(page).find(Array.isArray) as Item<P>[];
      if (typeof page.next_cursor !== "string") return;
      // A cursor excludes these.
      const { after: _, offset: __, ...filters } = query;
      query = { ...filters, cursor: page.next_cursor };
    }
  }
}

/** Declares the body of a request that is a file. */
function described(init: never): never {
  const { body } = (init ?? {}) as { body?: unknown };
  return body instanceof Blob ? ({ ...(init as object), headers: { "Content-Type": "application/octet-stream" } } as never) : init;
}

/** A file is sent as it is, an object with files as a form, everything else as JSON. */
function bodySerializer(body: unknown): string | Blob | FormData {
  if (body instanceof Blob) return body;
  const fields = body as Record<string, string | Blob>;
  if (!Object.values(fields).some((value) => value instanceof Blob)) return JSON.stringify(body);
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return form;
}

interface ListInit {
  params?: { query?: Record<string, unknown> };
}
