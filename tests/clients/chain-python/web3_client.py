"""The ordinary work of web3.py on a chain of the sandbox."""

import asyncio
import json
import sys
import time
import urllib.request

from web3 import AsyncWeb3, Web3, WebSocketProvider
from web3.exceptions import ContractLogicError

URL, KEY = sys.argv[1:]
PATIENCE_SECS = 20
POLL_SECS = 0.05
ABI = [
    {
        "type": "event",
        "name": "Transfer",
        "inputs": [
            {"name": "from", "type": "address", "indexed": True},
            {"name": "to", "type": "address", "indexed": True},
            {"name": "value", "type": "uint256", "indexed": False},
        ],
        "anonymous": False,
    },
    {
        "type": "function",
        "name": "transfer",
        "stateMutability": "nonpayable",
        "inputs": [{"name": "to", "type": "address"}, {"name": "value", "type": "uint256"}],
        "outputs": [{"name": "", "type": "bool"}],
    },
    {
        "type": "function",
        "name": "balanceOf",
        "stateMutability": "view",
        "inputs": [{"name": "account", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
]


def api(method, path, body=None):
    request = urllib.request.Request(URL + path, method=method, data=body and json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {KEY}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def until(what, read):
    end = time.monotonic() + PATIENCE_SECS
    while time.monotonic() < end:
        if found := read():
            return found
        time.sleep(POLL_SECS)
    raise TimeoutError(what)


sandbox = api("GET", "/sandbox")
chain, owner = sandbox["chains"]["base"], sandbox["accounts"][0]
w3 = Web3(Web3.HTTPProvider(chain["rpc_url"]))
usdc = w3.eth.contract(chain["tokens"]["USDC"], abi=ABI)


def call(method):
    """A call that web3.py has no function for."""
    return lambda *params: w3.provider.make_request(method, list(params))["result"]


def send(signer, function):
    """Signs, sends, and waits for the receipt."""
    fields = {"from": signer.address, "nonce": w3.eth.get_transaction_count(signer.address)}
    signed = signer.sign_transaction(function.build_transaction(fields))
    return w3.eth.wait_for_transaction_receipt(w3.eth.send_raw_transaction(signed.raw_transaction), PATIENCE_SECS, POLL_SECS)


assert w3.eth.chain_id == chain["chain_id"]
assert w3.eth.account.from_key(owner["private_key"]).address == owner["address"]

# A new account gets coins and tokens from the faucet.
account = w3.eth.account.create()
assert w3.eth.get_balance(account.address) == 0
faucet = {"chain": "base", "address": account.address, "amount": "100"}
for sent in api("POST", "/sandbox/faucet", faucet)["sent"]:
    assert w3.eth.wait_for_transaction_receipt(sent["tx_hash"], PATIENCE_SECS, POLL_SECS)["status"] == 1
assert w3.eth.get_balance(account.address) == Web3.to_wei(1, "ether")
balance = usdc.functions.balanceOf(account.address)
assert balance.call() == 100_000_000

# A filter reports the event of a transfer once, and it can be queried afterwards.
mine = {"from": account.address}
live = usdc.events.Transfer.create_filter(from_block="latest", argument_filters=mine)
blocks, pending = w3.eth.filter("latest"), w3.eth.filter("pending")
transfer = usdc.functions.transfer(owner["address"], 5)
gas = transfer.estimate_gas({"from": account.address})
assert 21_000 < gas < 100_000, gas
receipt = send(account, transfer)
assert receipt["status"] == 1
events = until("the event", live.get_new_entries)
assert [(event["transactionHash"], event["args"]["value"]) for event in events] == [(receipt["transactionHash"], 5)]
assert live.get_new_entries() == []
assert receipt["blockHash"] in blocks.get_new_entries()
assert receipt["transactionHash"] in pending.get_new_entries()
assert w3.eth.uninstall_filter(live.filter_id)
at = receipt["blockNumber"]
queried = usdc.events.Transfer.get_logs(from_block=at, to_block=at, argument_filters=mine)
assert [event["transactionHash"] for event in queried] == [receipt["transactionHash"]]

# The reason of a revert.
try:
    usdc.functions.transfer(owner["address"], 1_000_000_000).call({"from": account.address})
    raise AssertionError("the transfer must revert")
except ContractLogicError as error:
    assert "ERC20: transfer amount exceeds balance" in str(error), error

# A revert to a snapshot undoes a transfer.
before, snapshot = balance.call(), call("evm_snapshot")()
assert send(account, transfer)["status"] == 1
assert balance.call() == before - 5
assert call("evm_revert")(snapshot) is True
assert balance.call() == before


async def live_heads():
    """New heads over a WebSocket."""
    async with AsyncWeb3(WebSocketProvider(chain["ws_url"])) as socket:
        assert await socket.eth.chain_id == chain["chain_id"]
        subscription = await socket.eth.subscribe("newHeads")
        numbers = []
        async for message in socket.socket.process_subscriptions():
            numbers.append(message["result"]["number"])
            if len(numbers) == 3:
                break
        assert numbers == list(range(numbers[0], numbers[0] + 3)), numbers
        assert await socket.eth.unsubscribe(subscription)


asyncio.run(asyncio.wait_for(live_heads(), PATIENCE_SECS))
print("ok")
