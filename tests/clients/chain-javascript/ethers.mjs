// The ordinary work of ethers on a chain of the sandbox.
import assert from "node:assert/strict";
import { Contract, JsonRpcProvider, Wallet, WebSocketProvider, parseEther, parseUnits } from "ethers";
import { ABI, POLL_MS, account, api, chain, socketUrl, until } from "./sandbox.mjs";

/** An HTTP provider that counts its calls. */
class Provider extends JsonRpcProvider {
  counts = {};

  async send(method, params) {
    this.counts[method] = (this.counts[method] ?? 0) + 1;
    return super.send(method, params);
  }
}

// By default, ethers repeats results for 250 ms, longer than a block takes here.
const options = { cacheTimeout: -1 };
const http = new Provider(chain.rpc_url, undefined, options);
http.pollingInterval = POLL_MS;
const socket = new WebSocketProvider(socketUrl, undefined, options);

for (const provider of [http, socket]) {
  assert.equal((await provider.getNetwork()).chainId, BigInt(chain.chain_id));

  // A new account gets coins and tokens from the faucet.
  const wallet = Wallet.createRandom().connect(provider);
  assert.equal(await provider.getBalance(wallet.address), 0n);
  const { sent } = await api("POST", "/sandbox/faucet", { chain: "base", address: wallet.address, amount: "100" });
  for (const { tx_hash } of sent) assert.equal((await provider.waitForTransaction(tx_hash)).status, 1);
  assert.equal(await provider.getBalance(wallet.address), parseEther("1"));
  const usdc = new Contract(chain.tokens.USDC, ABI, wallet);
  assert.equal(await usdc.balanceOf(wallet.address), parseUnits("100", await usdc.decimals()));

  // An event arrives while a transfer is mined, and can be queried afterwards.
  const events = [];
  const toAccount = usdc.filters.Transfer(wallet.address, account.address);
  await usdc.on(toAccount, (event) => events.push(event));
  const gas = await usdc.transfer.estimateGas(account.address, 5n);
  assert(gas > 21_000n && gas < 100_000n, `gas ${gas}`);
  const receipt = await (await usdc.transfer(account.address, 5n)).wait();
  assert(receipt.status === 1 && receipt.gasUsed <= gas);
  const event = await until("the event", () => events[0]);
  assert.deepEqual([event.log.transactionHash, event.args.value], [receipt.hash, 5n]);
  const queried = await usdc.queryFilter(toAccount, receipt.blockNumber, receipt.blockNumber);
  assert.deepEqual(queried.map(({ transactionHash }) => transactionHash), [receipt.hash]);
  await usdc.off(toAccount);
  const block = await new Promise((resolve) => provider.once("block", resolve));
  assert(block >= receipt.blockNumber);

  // The reason of a revert.
  await assert.rejects(usdc.transfer.staticCall(account.address, parseUnits("1000", 6)), {
    code: "CALL_EXCEPTION",
    reason: "ERC20: transfer amount exceeds balance",
  });

  // A revert to a snapshot undoes a transfer.
  const before = await usdc.balanceOf(wallet.address);
  const snapshot = await provider.send("evm_snapshot", []);
  await (await usdc.transfer(account.address, 7n)).wait();
  assert.equal(await usdc.balanceOf(wallet.address), before - 7n);
  assert.equal(await provider.send("evm_revert", [snapshot]), true);
  assert.equal(await usdc.balanceOf(wallet.address), before);
  assert.equal(await provider.getTransactionCount(wallet.address), 1);
}

// An account of the sandbox signs with its key.
const owner = new Wallet(account.private_key, http);
assert.equal(owner.address, account.address);
const coins = await owner.sendTransaction({ to: Wallet.createRandom().address, value: 1n });
assert.equal((await coins.wait()).status, 1);

assert(http.counts.eth_newFilter > 0 && http.counts.eth_getFilterChanges > 0, JSON.stringify(http.counts));
http.destroy();
await socket.destroy();
console.log("ok");
