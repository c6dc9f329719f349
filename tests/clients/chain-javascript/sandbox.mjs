// The sandbox that a script uses: its URL and key are the arguments.
import assert from "node:assert/strict";

const [, , url, key] = process.argv;
if (key === undefined) throw new Error("usage: BASE_URL API_KEY");

export const POLL_MS = 50;
const PATIENCE_MS = 20_000;

export async function api(method, path, body) {
  const response = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  assert.equal(response.status, 200, `${method} ${path}: ${JSON.stringify(answer)}`);
  return answer;
}

const facts = await api("GET", "/sandbox");

export const chain = facts.chains.base;
export const account = facts.accounts[0];
export const socketUrl = chain.ws_url;
export const ABI = [
  "event Transfer(address indexed from, address indexed to, uint256 value)",
  "function transfer(address to, uint256 value) returns (bool)",
  "function balanceOf(address account) view returns (uint256)",
  "function decimals() view returns (uint8)",
];

/** Waits until `read` returns something, and returns it. */
export async function until(what, read) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; ) {
    const found = await read();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  throw new Error(`timed out: ${what}`);
}
