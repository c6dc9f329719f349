// The ordinary work of viem on a chain of the sandbox.
import assert from "node:assert/strict";
import {
  ContractFunctionRevertedError,
  createPublicClient,
  createTestClient,
  createWalletClient,
  defineChain,
  http,
  parseAbi,
  parseEther,
  parseUnits,
  webSocket,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { ABI, POLL_MS, account, api, chain, socketUrl, until } from "./sandbox.mjs";

const base = defineChain({
  id: chain.chain_id,
  name: "Sandbox",
  nativeCurrency: { name: "Coin", symbol: "COIN", decimals: 18 },
  rpcUrls: { default: { http: [chain.rpc_url], webSocket: [socketUrl] } },
  contracts: { multicall3: { address: chain.multicall3 } },
});
const usdc = { address: chain.tokens.USDC, abi: parseAbi(ABI) };

for (const transport of [http(), webSocket()]) {
  const options = { chain: base, transport, pollingInterval: POLL_MS };
  const reader = createPublicClient(options);
  const wallet = privateKeyToAccount(generatePrivateKey());
  const writer = createWalletClient({ ...options, account: wallet });
  assert.equal(await reader.getChainId(), chain.chain_id);

  // A new account gets coins and tokens from the faucet.
  assert.equal(await reader.getBalance(wallet), 0n);
  const { sent } = await api("POST", "/sandbox/faucet", { chain: "base", address: wallet.address, amount: "100" });
  for (const { tx_hash: hash } of sent) {
    assert.equal((await reader.waitForTransactionReceipt({ hash })).status, "success");
  }
  assert.equal(await reader.getBalance(wallet), parseEther("1"));

  // Several reads in one call.
  const balanceOf = (address) => ({ ...usdc, functionName: "balanceOf", args: [address] });
  const reads = { allowFailure: false, contracts: [balanceOf(wallet.address), { ...usdc, functionName: "decimals" }] };
  assert.deepEqual(await reader.multicall(reads), [parseUnits("100", 6), 6]);

  // An event arrives while a transfer is mined, and can be queried afterwards. Over a WebSocket it is a subscription.
  const events = [];
  const ofWallet = { ...usdc, eventName: "Transfer", args: { from: wallet.address } };
  const errors = [];
  const unwatch = reader.watchContractEvent({
    ...ofWallet,
    onLogs: (logs) => events.push(...logs),
    onError: (error) => errors.push(error),
  });
  // The watch starts in the background.
  await reader.getBlockNumber({ cacheTime: 0 });
  await new Promise((resolve) => setTimeout(resolve, 10 * POLL_MS));
  const transfer = { ...usdc, functionName: "transfer", args: [account.address, 5n] };
  const gas = await reader.estimateContractGas({ ...transfer, account: wallet });
  assert(gas > 21_000n && gas < 100_000n, `gas ${gas}`);
  const hash = await writer.writeContract(transfer);
  const receipt = await reader.waitForTransactionReceipt({ hash });
  assert.equal(receipt.status, "success");
  const event = await until("the event", () => events[0] ?? errors[0]);
  assert.deepEqual([event.transactionHash, event.args?.value], [hash, 5n]);
  unwatch();
  const { blockNumber } = receipt;
  const queried = await reader.getContractEvents({ ...ofWallet, fromBlock: blockNumber, toBlock: blockNumber });
  assert.deepEqual(queried.map(({ transactionHash }) => transactionHash), [hash]);
  let unwatchBlocks;
  const block = await new Promise((onBlock, onError) => {
    unwatchBlocks = reader.watchBlocks({ onBlock, onError });
  });
  unwatchBlocks();
  assert(block.number >= blockNumber);

  // The reason of a revert.
  const tooMuch = { ...transfer, args: [account.address, parseUnits("1000", 6)], account: wallet };
  await assert.rejects(reader.simulateContract(tooMuch), (error) => {
    const reverted = error.walk((cause) => cause instanceof ContractFunctionRevertedError);
    assert.equal(reverted.reason, "ERC20: transfer amount exceeds balance");
    return true;
  });

  // A revert to a snapshot undoes a transfer.
  const tester = createTestClient({ ...options, mode: "anvil" });
  const before = await reader.readContract(balanceOf(wallet.address));
  const id = await tester.snapshot();
  await reader.waitForTransactionReceipt({ hash: await writer.writeContract(transfer) });
  assert.equal(await reader.readContract(balanceOf(wallet.address)), before - 5n);
  await tester.revert({ id });
  assert.equal(await reader.readContract(balanceOf(wallet.address)), before);
}

// An account of the sandbox signs with its key.
const owner = privateKeyToAccount(account.private_key);
assert.equal(owner.address, account.address);
console.log("ok");
process.exit(0);
