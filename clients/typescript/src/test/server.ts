import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { Payferry, type PayferryOptions } from "../index.js";

/** Answers one request. */
export type Answer = (response: ServerResponse, request: IncomingMessage) => void;

/** A request that arrived. */
export interface Arrived {
  method: string | undefined;
  url: string | undefined;
  key: string | string[] | undefined;
  body: string;
  atMs: number;
}

/** Gives one answer after the other, and repeats the last one. Returns its client and the requests that arrived. */
export async function scripted(answers: Answer[], options: Partial<PayferryOptions> = {}) {
  const arrived: Arrived[] = [];
  const server = createServer(async (request, response) => {
    const answer = answers[Math.min(arrived.length, answers.length - 1)];
    const { method, url, headers } = request;
    arrived.push({ method, url, key: headers["idempotency-key"], body: await text(request), atMs: performance.now() });
    // A test does not wait for idle connections.
    response.setHeader("Connection", "close");
    answer?.(response, request);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  server.unref();
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { arrived, payferry: new Payferry({ baseUrl, apiKey: "sk_test_1", ...options }) };
}

export function json(status: number, body: object, headers: Record<string, string> = {}): Answer {
  return (response) => response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function problem(status: number, code: string, headers: Record<string, string> = {}): Answer {
  const body = { type: `urn:payferry:problem:${code}`, title: "Title", status, detail: "Detail.", code, message: "Detail.", errors: [] };
  return json(status, body, { "X-Request-Id": "req-1", ...headers });
}

/** Closes the connection without an answer. */
export const hangUp: Answer = (_, request) => request.socket.destroy();

/** Closes the connection in the middle of the body. */
export const cutOff: Answer = (response) => {
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "100" });
  response.write('{"payment_id":', () => response.destroy());
};
