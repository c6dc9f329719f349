// The client that openapi-typescript and openapi-fetch make of the document: initiates a payment, creates a customer, and reads
// both back. It fails if a call fails or a value is not what was sent.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const [, , baseUrl, apiKey] = process.argv;
if (baseUrl === undefined || apiKey === undefined) throw new Error("usage: client.js BASE_URL API_KEY");
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${apiKey}` } });

function ensure(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

const synced = await client.POST("/merchants/sync", {
  body: { merchants: [{ external_id: "ts", name: "Shop", email: "shop@example.com", business_id: "1" }] },
});
const merchant = synced.data?.merchants[0];
if (merchant === undefined) throw new Error(`no merchant: ${JSON.stringify(synced.error)}`);

const initiated = await client.POST("/payments/initiate", {
  body: { merchant_id: merchant.merchant_id, amount: "10.50", currency: "USDC", chain: "base" },
});
if (initiated.data === undefined) throw new Error(`no payment: ${JSON.stringify(initiated.error)}`);
const path = { payment_id: initiated.data.payment_id };
const payment = (await client.GET("/payments/{payment_id}", { params: { path } })).data;
ensure(payment?.amount === "10.50" && payment.status === "pending", JSON.stringify(payment));
ensure(payment?.intermediary_wallet === initiated.data.intermediary_wallet, "another wallet");

const created = await client.POST("/api/v1/customers", {
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
const customer: components["schemas"]["CustomerRecord"] | undefined = created.data?.customers[0];
if (customer === undefined) throw new Error(`no customer: ${JSON.stringify(created.error)}`);
const read = (await client.GET("/api/v1/customers/{customer_id}", { params: { path: { customer_id: customer.id } } })).data;
ensure(read?.customer.email === "ada@example.com" && read.customer.kyc_status === "pending", JSON.stringify(read));

const refused = await client.GET("/payments/{payment_id}", { params: { path: { payment_id: "pay_none" } } });
ensure(refused.error?.code === "payment_not_found", JSON.stringify(refused.error));
console.log(`${path.payment_id} ${customer.id}`);
