import type { IncomingHttpHeaders } from "node:http";
import { Webhook } from "standardwebhooks";
import type { Event, WebhookTestEvent } from "./schema.js";

/** The body of a webhook. `event` decides on its fields. */
export type WebhookEvent = Event | WebhookTestEvent;

/**
 * Returns the event of a delivery, or throws `WebhookVerificationError` if it is forged, changed or older than 5 minutes.
 *
 * `body` is the body as it arrived: parsed and written again, it has another signature.
 */
export function verifyWebhook(secret: string, body: string | Buffer, headers: IncomingHttpHeaders | Headers): WebhookEvent {
  const fields = headers instanceof Headers ? Object.fromEntries(headers) : headers;
  return new Webhook(secret).verify(body, fields as Record<string, string>) as WebhookEvent;
}
