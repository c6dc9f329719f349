// Only compiled: calls that the types accept, and calls that they refuse.
import type { Payferry, PaymentRecord, StatementDocument, WebhookEvent } from "../index.js";

export async function accepted(payferry: Payferry): Promise<void> {
  const body = { merchant_id: "merch_1", amount: "1", currency: "USDC", chain: "best" } as const;
  const path = { payment_id: "pay_1" };
  const payment: PaymentRecord = await payferry.post("/payments/initiate", { body });
  await payferry.post("/payments/{payment_id}/cancel", { params: { path, header: { "Idempotency-Key": payment.payment_id } } });
  for await (const one of payferry.list("/payments")) one satisfies PaymentRecord;
  for await (const event of payferry.list("/api/v1/events")) event satisfies WebhookEvent;
  for await (const refund of payferry.list("/payments/{payment_id}/refunds", { params: { path } })) refund.amount satisfies string;
  const query = { from: "2026-01-01", to: "2026-02-01" };
  (await payferry.get("/ledger/statement", { params: { query } })) satisfies StatementDocument;
  (await payferry.get("/ledger/statement", { params: { query: { ...query, format: "csv" } }, parseAs: "text" })) satisfies string;
}

export async function refused(payferry: Payferry): Promise<void> {
  const body = { merchant_id: "merch_1", amount: "1", currency: "USDC", chain: "best" } as const;
  // @ts-expect-error The path does not exist.
  await payferry.get("/payment");
  // @ts-expect-error The body is missing.
  await payferry.post("/payments/initiate");
  // @ts-expect-error The token does not exist.
  await payferry.post("/payments/initiate", { body: { ...body, currency: "EUR" } });
  // @ts-expect-error The option does not exist.
  await payferry.post("/payments/initiate", { body, parameters: {} });
  // @ts-expect-error The filter does not exist.
  await payferry.get("/payments", { params: { query: { state: "settled" } } });
  // @ts-expect-error The path has a parameter.
  await payferry.get("/payments/{payment_id}");
  // @ts-expect-error Balances have no pages.
  for await (const _ of payferry.list("/balances")) break;
  // @ts-expect-error A stream cannot be read.
  await payferry.get("/payments/{payment_id}/events", { params: { path: { payment_id: "pay_1" } } });
}
