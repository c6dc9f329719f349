import assert from "node:assert/strict";
import { test } from "node:test";
import { Webhook } from "standardwebhooks";
import { verifyWebhook, WebhookVerificationError } from "../index.js";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ROTATED = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const BODY = JSON.stringify({ event: "payment.settled", event_id: "evt_1", payment_id: "pay_1", amount: "10.00" });

/** The headers of a delivery that these secrets sign. */
function headers(secrets: string[], ageSecs = 0) {
  const sentAt = new Date(Date.now() - ageSecs * 1_000);
  const signatures = secrets.map((secret) => new Webhook(secret).sign("evt_1", sentAt, BODY));
  return {
    "webhook-id": "evt_1",
    "webhook-timestamp": String(Math.floor(sentAt.getTime() / 1_000)),
    "webhook-signature": signatures.join(" "),
  };
}

test("a genuine delivery is an event", () => {
  const event = verifyWebhook(SECRET, Buffer.from(BODY), headers([SECRET]));
  assert.ok(event.event === "payment.settled" && event.amount === "10.00");
});

test("the headers of fetch are accepted", () => {
  assert.equal(verifyWebhook(SECRET, BODY, new Headers(headers([SECRET]))).event_id, "evt_1");
});

test("a delivery after a rotation verifies with the old and the new secret", () => {
  for (const secret of [SECRET, ROTATED]) {
    assert.equal(verifyWebhook(secret, BODY, headers([ROTATED, SECRET])).event_id, "evt_1");
  }
});

for (const [name, body, given] of [
  ["another secret", BODY, headers([ROTATED])],
  ["a changed body", BODY.replace("10.00", "99.00"), headers([SECRET])],
  ["an old timestamp", BODY, headers([SECRET], 400)],
  ["a timestamp in the future", BODY, headers([SECRET], -400)],
  ["another timestamp than the signed one", BODY, { ...headers([SECRET]), "webhook-timestamp": headers([], 60)["webhook-timestamp"] }],
  ["another id than the signed one", BODY, { ...headers([SECRET]), "webhook-id": "evt_2" }],
  ["no signature", BODY, headers([])],
  ["an unreadable signature", BODY, { ...headers([]), "webhook-signature": "v1 ?" }],
  ["an unreadable timestamp", BODY, { ...headers([SECRET]), "webhook-timestamp": "yesterday" }],
  ["no headers", BODY, {}],
] as const) {
  test(`a delivery with ${name} is refused`, () => {
    assert.throws(() => verifyWebhook(SECRET, body, given), WebhookVerificationError);
  });
}
