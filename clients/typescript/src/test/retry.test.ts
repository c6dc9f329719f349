import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NoResponseError, ProblemError } from "../index.js";
import { cutOff, hangUp, json, problem, scripted, type Answer } from "./server.js";

const payment = { merchant_id: "merch_1", amount: "10", currency: "USDC", chain: "base" } as const;
const created = json(201, { payment_id: "pay_1" });

/** Initiates a payment. */
async function initiate(answers: Answer[], key?: string) {
  const { arrived, payferry } = await scripted(answers);
  const params = key === undefined ? {} : { header: { "Idempotency-Key": key } };
  const outcome = await payferry.post("/payments/initiate", { params, body: payment }).catch((error: unknown) => error);
  return { arrived, outcome };
}

// Most of the time, they wait.
describe("retries", { concurrency: true }, () => {
  for (const [name, failure] of [
    ["a lost connection", hangUp],
    ["half a body", cutOff],
    ["408", problem(408, "body_timeout")],
    ["429", problem(429, "rate_limited", { "Retry-After": "1" })],
    ["500", problem(500, "internal_error")],
    ["502 of a proxy", (response) => response.writeHead(502).end("<html>")],
    ["503", problem(503, "timed_out", { "Retry-After": "1" })],
    ["409 while the first request runs", problem(409, "idempotency_request_running", { "Retry-After": "1" })],
  ] satisfies [string, Answer][]) {
    test(`${name} is followed by the same request with the same key`, async () => {
      const { arrived, outcome } = await initiate([failure, created]);
      assert.deepEqual(outcome, { payment_id: "pay_1" });
      assert.equal(arrived.length, 2);
      assert.match(String(arrived[0]?.key), /^[0-9a-f-]{36}$/);
      assert.equal(arrived[1]?.key, arrived[0]?.key);
      assert.equal(arrived[1]?.body, JSON.stringify(payment));
    });
  }

  for (const [name, refusal] of [
    ["a conflict", problem(409, "merchant_inactive")],
    ["an invalid field", problem(422, "validation_failed")],
    ["a redirection", (response) => response.writeHead(307, { Location: "/elsewhere" }).end()],
    ["a pause that is longer than a call waits", problem(503, "chain_paused", { "Retry-After": "60" })],
  ] satisfies [string, Answer][]) {
    test(`${name} is not followed by another request`, async () => {
      const { arrived, outcome } = await initiate([refusal, created]);
      assert.ok(outcome instanceof ProblemError);
      assert.equal(arrived.length, 1);
    });
  }

  test("Retry-After is the time between two requests", async () => {
    const { arrived } = await initiate([problem(503, "database_unavailable", { "Retry-After": "2" }), created]);
    const [first, second] = arrived.map(({ atMs }) => atMs);
    assert.ok(second! - first! >= 1_990, `${second! - first!} ms`);
  });

  test("the last response is thrown after three retries", async () => {
    const { arrived, outcome } = await initiate([problem(500, "internal_error")]);
    assert.equal((outcome as ProblemError).code, "internal_error");
    assert.equal(arrived.length, 4);
  });

  test("retries can be turned off", async () => {
    const { arrived, payferry } = await scripted([hangUp], { retriesMax: 0 });
    await assert.rejects(payferry.get("/balances"), NoResponseError);
    assert.equal(arrived.length, 1);
  });

  test("an error has the key that repeats the call", async () => {
    const { arrived, outcome } = await initiate([hangUp], "order-17");
    assert.ok(outcome instanceof NoResponseError && outcome.cause instanceof Error);
    assert.equal(outcome.idempotencyKey, "order-17");
    assert.deepEqual(new Set(arrived.map(({ key }) => key)), new Set(["order-17"]));
  });

  test("a request without a response in time is repeated", async () => {
    const { arrived, payferry } = await scripted([() => {}, json(200, { balances: [] })], { timeoutMs: 1_000 });
    assert.deepEqual(await payferry.get("/balances"), { balances: [] });
    assert.ok(arrived.length >= 2);
  });

  test("only changes have a key", async () => {
    const { arrived, payferry } = await scripted([json(200, {})]);
    await payferry.get("/balances");
    await payferry.patch("/api/v1/set_webhook", { body: { webhook_url: "https://psp.example/" } });
    await payferry.delete("/api/v1/customers/{customer_id}", { params: { path: { customer_id: "cr_1" } } });
    assert.deepEqual(arrived.map(({ method, key }) => [method, typeof key]), [
      ["GET", "undefined"],
      ["PATCH", "string"],
      ["DELETE", "undefined"],
    ]);
  });

  test("a caller can abort a call that waits for a retry", async () => {
    const controller = new AbortController();
    const overloaded: Answer = (response, request) => {
      response.on("close", () => setTimeout(() => controller.abort(), 100));
      problem(503, "overloaded", { "Retry-After": "10" })(response, request);
    };
    const { arrived, payferry } = await scripted([overloaded]);
    const begin = performance.now();
    await assert.rejects(payferry.get("/balances", { signal: controller.signal }), { name: "AbortError" });
    assert.equal(arrived.length, 1);
    assert.ok(performance.now() - begin < 9_000);
  });

  test("a problem has its code, fields and request id", async () => {
    const errors = [{ field: "amount", code: "too_small", message: "must be positive" }];
    const body = { code: "validation_failed", detail: "A field is not valid.", errors };
    const { outcome } = await initiate([json(422, body, { "X-Request-Id": "req-1" })], "key-1");
    assert.ok(outcome instanceof ProblemError);
    const { status, code, detail, requestId, idempotencyKey, retryAfterSecs } = outcome;
    const expected = [422, "validation_failed", "A field is not valid.", "req-1", "key-1", undefined];
    assert.deepEqual([status, code, detail, requestId, idempotencyKey, retryAfterSecs], expected);
    assert.deepEqual(outcome.errors, errors);
    assert.equal(outcome.message, "A field is not valid.; amount must be positive (422 validation_failed, request req-1)");
  });

  test("a response without a problem document has its own code", async () => {
    const { outcome } = await initiate([(response) => response.writeHead(403).end("<html>Blocked")]);
    assert.ok(outcome instanceof ProblemError);
    assert.deepEqual([outcome.status, outcome.code, outcome.detail], [403, "unexpected_response", "<html>Blocked"]);
    assert.equal(outcome.message, "<html>Blocked (403 unexpected_response)");
  });
});
