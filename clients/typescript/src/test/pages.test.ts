import assert from "node:assert/strict";
import { test } from "node:test";
import { json, problem, scripted } from "./server.js";

const page = (payments: string[], next_cursor: string | null) =>
  json(200, { message: "", total: null, limit: 2, offset: 0, next_cursor, payments: payments.map((payment_id) => ({ payment_id })) });

test("a list is read page by page with the same filters", async () => {
  const { arrived, payferry } = await scripted([page(["pay_4", "pay_3"], "c1"), page([], "c2"), page(["pay_1"], null)]);
  const query = { status: "settled", limit: 2, after: "pay_5" } as const;
  const found: string[] = [];
  for await (const payment of payferry.list("/payments", { params: { query } })) found.push(payment.payment_id);
  assert.deepEqual(found, ["pay_4", "pay_3", "pay_1"]);
  assert.deepEqual(arrived.map(({ url }) => url), [
    "/payments?status=settled&limit=2&after=pay_5",
    "/payments?status=settled&limit=2&cursor=c1",
    "/payments?status=settled&limit=2&cursor=c2",
  ]);
});

test("a page is requested when its items are needed", async () => {
  const { arrived, payferry } = await scripted([page(["pay_2"], "c1"), page(["pay_1"], null)]);
  for await (const _ of payferry.list("/payments")) break;
  assert.equal(arrived.length, 1);
});

test("a list of one payment has its path", async () => {
  const refunds = json(200, { message: "", total: 1, limit: 50, offset: 0, next_cursor: null, refunds: [{ id: "rf_1" }] });
  const { arrived, payferry } = await scripted([refunds]);
  const params = { path: { payment_id: "pay_1" } };
  for await (const refund of payferry.list("/payments/{payment_id}/refunds", { params })) assert.equal(refund.id, "rf_1");
  assert.equal(arrived[0]?.url, "/payments/pay_1/refunds");
});

test("a failed page ends the iteration with its error", async () => {
  const { payferry } = await scripted([page(["pay_2"], "c1"), problem(400, "invalid_parameters")]);
  const found: string[] = [];
  const read = async () => {
    for await (const { payment_id } of payferry.list("/payments")) found.push(payment_id);
  };
  await assert.rejects(read, { code: "invalid_parameters" });
  assert.deepEqual(found, ["pay_2"]);
});
