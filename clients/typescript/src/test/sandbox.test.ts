// Uses a running sandbox: PAYFERRY_URL and PAYFERRY_API_KEY name it.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Payferry, ProblemError, verifyWebhook, WebhookVerificationError, type WebhookEvent } from "../index.js";

/** The longest time until a payment is settled. A sandbox needs a few seconds. */
const SETTLED_SECS_MAX = 60;
/** A PNG of one pixel. */
const LOGO = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const { PAYFERRY_URL: baseUrl = "", PAYFERRY_API_KEY: apiKey = "" } = process.env;
const skip = baseUrl === "" && "PAYFERRY_URL and PAYFERRY_API_KEY name no sandbox";

describe("a sandbox", { skip, concurrency: true }, () => {
  const payferry = new Payferry({ baseUrl, apiKey });

  test("a payment goes from merchant to settled", async () => {
    const receiver = await receive();
    const { merchants } = await payferry.post("/merchants/sync", {
      body: { merchants: [{ external_id: randomUUID(), name: "Shop", email: "shop@example.com", business_id: "B-1" }] },
    });
    const [{ merchant_id }] = merchants as [(typeof merchants)[number]];
    const body = { merchant_id, amount: "25", currency: "USDC", chain: "base" } as const;
    const header = { "Idempotency-Key": randomUUID() };
    const payment = await payferry.post("/payments/initiate", { params: { header }, body });
    const repeated = await payferry.post("/payments/initiate", { params: { header }, body });
    const other = await payferry.post("/payments/initiate", { body });
    const { payment_id } = payment;
    assert.equal(payment.status, "pending");
    assert.equal(repeated.payment_id, payment_id);
    assert.notEqual(other.payment_id, payment_id);

    const pay = `${baseUrl}/sandbox/payments/${payment_id}/pay`;
    const paid = await fetch(pay, { method: "POST", headers: { Authorization: `Bearer ${apiKey}` } });
    assert.ok(paid.ok, await paid.text());
    const settled = await receiver.wait("payment.settled", payment_id);
    assert.ok(settled.event === "payment.settled");
    assert.equal(settled.amount_received, "25.00");
    await receiver.wait("payment.confirmed", payment_id);

    const read = await payferry.get("/payments/{payment_id}", { params: { path: { payment_id } } });
    assert.deepEqual([read.status, read.amount_received, read.kyt_verdict], ["settled", "25.00", "allow"]);

    const listed = async (query: { status?: "settled" }) => {
      const found: string[] = [];
      const params = { query: { merchant_id, limit: 1, ...query } };
      for await (const one of payferry.list("/payments", { params })) found.push(one.payment_id);
      return found;
    };
    assert.deepEqual(await listed({}), [other.payment_id, payment_id]);
    assert.deepEqual(await listed({ status: "settled" }), [payment_id]);
  });

  test("a delivery verifies with both secrets after a rotation", async () => {
    const receiver = await receive();
    const params = { path: { endpoint_id: receiver.endpointId } };
    const { signing_secret } = await payferry.post("/api/v1/webhook-endpoints/{endpoint_id}/rotate", { params });
    const { delivered } = await payferry.post("/api/v1/webhook-endpoints/{endpoint_id}/test", { params });
    assert.ok(delivered);
    const [{ body, headers }] = receiver.deliveries as [Delivery];
    for (const secret of [receiver.secret, signing_secret]) {
      assert.equal(verifyWebhook(secret, body, headers).event, "webhook.test");
      assert.throws(() => verifyWebhook(secret, Buffer.concat([body, Buffer.from(" ")]), headers), WebhookVerificationError);
    }
  });

  test("a document of a customer is read back", async () => {
    const created = await payferry.post("/api/v1/customers", {
      body: {
        type: "individual",
        country: "USA",
        currency: "USD",
        email: "ada@example.com",
        first_name: "Ada",
        last_name: "Lovelace",
        dob: "1990-12-10",
        government_id_number: "P1234567",
        residential_address: { street_line_1: "1 Harbour Road", city: "Oakland", region: "CA", zip: "94607", country: "USA" },
      },
    });
    const [{ id: customer_id }] = created.customers as [(typeof created.customers)[number]];
    const proof = new Blob(["%PDF-1.4\n%%EOF\n"], { type: "application/pdf" });
    await payferry.patch("/api/v1/customers/uploads", { body: { customer_id, proof_of_residential_address: proof } });
    const path = { customer_id, kind: "proof_of_residential_address" };
    const document = "/api/v1/customers/{customer_id}/documents/{kind}";
    const read = await payferry.get(document, { params: { path }, parseAs: "text" });
    assert.equal(read, await proof.text());

    const logo = Buffer.from(LOGO, "base64");
    const { checkout } = await payferry.put("/api/v1/settings/logo", { body: new Blob([logo]) });
    const served = await fetch(`${baseUrl}${new URL(checkout.logo_url!).pathname}`);
    assert.deepEqual(Buffer.from(await served.arrayBuffer()), logo);
    assert.equal((await payferry.delete("/api/v1/settings/logo")).checkout.logo_url, null);
    const { customer } = await payferry.get("/api/v1/customers/{customer_id}", { params: { path: { customer_id } } });
    assert.deepEqual([customer.email, customer.kyc_status], ["ada@example.com", "pending"]);
  });

  test("a refusal is a problem", async () => {
    const body = { merchant_id: "merch_1", amount: "-1", currency: "USDC", chain: "base" } as const;
    const error = await payferry.post("/payments/initiate", { body }).catch((refusal: unknown) => refusal);
    assert.ok(error instanceof ProblemError);
    assert.deepEqual([error.status, error.code], [422, "validation_failed"]);
    assert.ok(error.errors.some(({ field }) => field === "amount"));
    assert.ok(error.requestId);
    const stranger = new Payferry({ baseUrl, apiKey: "sk_test_1" });
    await assert.rejects(stranger.get("/balances"), { status: 401, code: "api_key_malformed" });
  });

  /** Starts a receiver of webhooks, and adds it to the account. */
  async function receive() {
    const deliveries: Delivery[] = [];
    const server = createServer(async (request, response) => {
      deliveries.push({ body: await buffer(request), headers: request.headers });
      // A test does not wait for idle connections.
      response.setHeader("Connection", "close").end();
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    server.unref();
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const { id, signing_secret } = await payferry.post("/api/v1/webhook-endpoints", { body: { url } });
    const events = () => deliveries.map(({ body, headers }) => verifyWebhook(signing_secret, body, headers));
    const wait = async (name: WebhookEvent["event"], id: string) => {
      for (const end = Date.now() + SETTLED_SECS_MAX * 1_000; Date.now() < end; await setTimeout(100)) {
        const found = events().find(({ event, payment_id }) => event === name && payment_id === id);
        if (found !== undefined) return found;
      }
      throw new Error(`no ${name} within ${SETTLED_SECS_MAX} s: ${events().map(({ event }) => event)}`);
    };
    return { endpointId: id, secret: signing_secret, deliveries, events, wait };
  }
});

interface Delivery {
  body: Buffer;
  headers: IncomingHttpHeaders;
}
