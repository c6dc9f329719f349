export { WebhookVerificationError } from "standardwebhooks";
export { Payferry, type PayferryOptions } from "./client.js";
export { NoResponseError, PayferryError, ProblemError } from "./errors.js";
export type * from "./schema.js";
export { verifyWebhook, type WebhookEvent } from "./webhooks.js";
