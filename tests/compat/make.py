#!/usr/bin/env python3
"""Makes the databases and the data folder that tests/it/compat opens.

    git worktree add /tmp/old 7996220 && (cd /tmp/old && cargo build --release)
    tests/with-postgres python3 tests/compat/make.py /tmp/old/target/release/payferry tests/compat/7996220.tar.gz

Needs Python 3.8 or newer, pg_dump, tar, and nothing else. Takes about three minutes. The archive contains:

    sandbox/          the data folder of a sandbox. Its chains are also the chains of both services.
    sqlite/           a service: configuration, secrets, documents, and its SQLite database
    postgres/         the same on PostgreSQL, with a dump of its database in dump.sql
    recorded.json     for each of the three: keys, ids, and the answers that the old binary gave

Each has payments in every state, refunds, payouts and withdrawals, customers' data and a document, and ends with two pauses, so that
a confirmed payment and a pending payout wait for the next start.

A service has no payer of its own. Its payments are paid by refunds of large payments in the sandbox, which are real transfers on
the same chains.
"""

import http.server
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request

PATIENCE_SECS = 90
BLOCK_TIME_MS = 500
CHAINS = ["base", "polygon", "arbitrum"]
# Test keys that anvil and hardhat publish: the operator of each service.
OPERATORS = {
    "sqlite": ("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80", "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
    "postgres": ("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"),
}
ADMIN = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"
TREASURY = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
# Receives refunds, payouts and withdrawals.
ELSEWHERE = "0x000000000000000000000000000000000000dEaD"
CUSTOMER_WALLET = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
PDF = b"%PDF-1.4\n% proof of residence\n%%EOF\n"


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


def call(method, url, token=None, body=None, content_type="application/json"):
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = {"content-type": content_type} if data is not None else {}
    if token:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        raise Refused(error.code, f"{method} {url}: {error.read().decode()}") from None
    try:
        return json.loads(text)
    except ValueError:
        return text


def until(what, ask):
    since = time.monotonic()
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() - since > PATIENCE_SECS:
            raise SystemExit(f"waited too long until {what}")
        time.sleep(0.2)


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts every webhook."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Process:
    """A running `sandbox` or `serve`."""

    def __init__(self, arguments, log):
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=open(log, "ab"))
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{arguments} ended before it was ready; see {log}")
        self.ready = json.loads(line)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0


class Service:
    """One service with one PSP, and what is recorded of it."""

    def __init__(self, process, api_key, operator_token, pay):
        self.api, self.key = process.ready["api_url"], api_key
        self.operator, self.operator_token = process.ready["operator_url"], operator_token
        self.pay = pay
        self.recorded = {"api_url": self.api, "api_key": api_key, "operator_token": operator_token}

    def get(self, path):
        return call("GET", self.api + path, self.key)

    def send(self, method, path, body=None):
        return call(method, self.api + path, self.key, body)

    def ops(self, path, body):
        return call("POST", self.operator + path, self.operator_token, body)

    def initiate(self, amount, currency, chain, **more):
        body = {"merchant_id": self.merchant, "amount": amount, "currency": currency, "chain": chain, **more}
        def ask():
            try:
                return self.send("POST", "/payments/initiate", body)
            except Refused as refused:
                # A chain that was not read yet.
                if refused.status != 503:
                    raise
                return None
        return until("a payment is initiated", ask)

    def paid(self, status, amount, currency, chain, pays=None, **more):
        payment = self.initiate(amount, currency, chain, **more)
        self.pay(payment, pays or amount)
        return self.until_status(payment["payment_id"], status)

    def until_status(self, payment_id, status):
        def ask():
            payment = self.get(f"/payments/{payment_id}")
            return payment if payment["status"] == status else None
        return until(f"{payment_id} is {status}", ask)

    def refund(self, payment, amount):
        refunds = f"/payments/{payment['payment_id']}/refunds"
        refund = self.send("POST", refunds, {"amount": amount, "address": ELSEWHERE})
        self.until_sent(f"{refunds}/{refund['refund_id']}")
        return payment

    def until_sent(self, path):
        return until(f"{path} is sent", lambda: self.get(path)["status"] == "sent")

    def customer(self):
        address = {"street_line_1": "12 St James's Square", "city": "London", "region": "London", "zip": "SW1Y 4JH", "country": "GBR"}
        made = self.send("POST", "/api/v1/customers", {
            "type": "individual", "country": "GBR", "currency": "GBP", "email": "ada@example.com", "first_name": "Ada",
            "last_name": "Lovelace", "dob": "1990-12-10", "government_id_number": "QQ123456C", "residential_address": address,
        })
        customer = made["customers"][0]["id"]
        self.send("PATCH", "/api/v1/customers/payment-details", {"customer_id": customer, "wallet_address": CUSTOMER_WALLET})
        consent = self.send("POST", f"/api/v1/customers/{customer}/service-consent")
        call("POST", consent["url"], body=b"accept=yes", content_type="application/x-www-form-urlencoded")
        parts = [
            b'--part\r\ncontent-disposition: form-data; name="customer_id"\r\n\r\n' + customer.encode(),
            b'--part\r\ncontent-disposition: form-data; name="proof_of_residential_address"; filename="proof.pdf"\r\n'
            b"content-type: application/pdf\r\n\r\n" + PDF,
            b"--part--\r\n",
        ]
        call("PATCH", f"{self.api}/api/v1/customers/uploads", self.key, b"\r\n".join(parts), "multipart/form-data; boundary=part")
        self.ops(f"/ops/customers/{customer}/decide", {"outcome": "approved", "reason": "known in person"})
        return customer

    def play(self, hooks):
        """Brings about every state."""
        merchants = {"merchants": [{"external_id": "shop-1", "name": "Ferry Shop", "email": "shop@example.com", "business_id": "B-1"}]}
        self.merchant = self.send("POST", "/merchants/sync", merchants)["merchants"][0]["merchant_id"]
        hook = self.send("PATCH", "/api/v1/set_webhook", {"webhook_url": hooks})
        self.recorded["signing_secret"] = hook["signing_secret"]
        customer = self.customer()
        expired = self.initiate("3", "USDC", "base", expires_in=60)
        payments = {
            "settled": self.paid("settled", "25.50", "USDC", "base", reference="R-1", metadata={"order": 7}),
            "settled_polygon": self.paid("settled", "40", "USDT", "polygon"),
            "settled_arbitrum": self.paid("settled", "10", "USDC", "arbitrum", customer_id=customer),
            "underpaid": self.paid("mismatched", "10", "USDC", "base", pays="7"),
            "overpaid_refunded": self.refund(self.paid("mismatched", "10", "USDT", "polygon", pays="12.5"), "2.5"),
            "refunded": self.refund(self.paid("settled", "8", "USDC", "base"), "8"),
            "partly_refunded": self.refund(self.paid("settled", "8", "USDC", "base"), "3"),
        }
        cancelled = self.initiate("4", "USDC", "polygon")
        payments["cancelled"] = self.send("POST", f"/payments/{cancelled['payment_id']}/cancel")
        payout = {"customer_id": customer, "amount": "5", "currency": "USDC", "chain": "base"}
        withdrawal = {"amount": "6", "currency": "USDC", "chain": "base"}
        outbound = {"payout": self.send("POST", "/payouts", payout), "withdrawal": self.send("POST", "/withdrawals", withdrawal)}
        for name, made in outbound.items():
            self.until_sent(f"/{name}s/{made['id']}")
        payments["expired"] = self.until_status(expired["payment_id"], "failed")
        # Waits for the next start: unpaid, confirmed, and a payout.
        payments["pending"] = self.initiate("9", "USDC", "base", expires_in=86_400)
        payments["pending_polygon"] = self.initiate("9", "USDT", "polygon", expires_in=86_400)
        self.ops("/ops/pauses", {"scope": "settlement", "reason": "kept for the next start"})
        payments["confirmed"] = self.paid("confirmed", "11", "USDC", "base", expires_in=86_400)
        return customer, payments, outbound, payout

    def finish(self, customer, payments, outbound, payout):
        """Records the answers, with sending paused."""
        self.ops("/ops/pauses", {"scope": "sending", "reason": "kept for the next start"})
        outbound["waiting_payout"] = self.send("POST", "/payouts", {**payout, "amount": "1.25"})
        kinds = {"payout": "payouts", "waiting_payout": "payouts", "withdrawal": "withdrawals"}
        read = {
            **{f"/payments/{made['payment_id']}": name for name, made in payments.items()},
            **{f"/{kinds[name]}/{made['id']}": name for name, made in outbound.items()},
            f"/api/v1/customers/{customer}": "customer",
            "/balances": "balances",
            "/api/v1/settings": "settings",
        }
        self.recorded["ids"] = {name: made.get("payment_id") or made["id"] for name, made in {**payments, **outbound}.items()}
        self.recorded["ids"]["customer"] = customer
        # Deliveries are part of what is read; let them end.
        time.sleep(3)
        self.recorded["read"] = {name: {"path": path, "answer": self.get(path)} for path, name in read.items()}
        document = self.get(f"/api/v1/customers/{customer}/documents/proof_of_residential_address")
        self.recorded["document"] = {
            "path": f"/api/v1/customers/{customer}/documents/proof_of_residential_address", "text": document.decode(),
        }


def configuration(folder, database, api, facts):
    """`payferry.toml` and the secrets of a service on the sandbox's chains."""
    name = os.path.basename(folder)
    os.makedirs(folder)
    token = f"op_{secrets.token_hex(24)}"
    for file, text in {
        "master.key": secrets.token_hex(32), "operator.token": token, "operator.key": OPERATORS[name][0],
        "sanctions.txt": "0x000000000000000000000000000000000000bad0\n",
    }.items():
        with open(f"{folder}/{file}", "w") as out:
            out.write(text)
        os.chmod(f"{folder}/{file}", 0o600)
    text = f"""[server]
listen = "127.0.0.1:0"
operator_listen = "127.0.0.1:0"
environment = "sandbox"

[database]
url = "{database}"

[secrets]
master_key_file = "{folder}/master.key"
operator_token_file = "{folder}/operator.token"

[signer]
private_key_file = "{folder}/operator.key"

[contracts]
address = "0x0000000000000000000000000000000000000000"
treasury = "{TREASURY}"

[kyt]
sanctions_file = "{folder}/sanctions.txt"

[documents]
folder = "{folder}/documents"
"""
    for chain in CHAINS:
        tokens, chain_id = facts["chains"][chain]["tokens"], facts["chains"][chain]["chain_id"]
        text += f"""
[chains.{chain}]
endpoints = ["{api}/sandbox/rpc/{chain}"]
chain_id = {chain_id}
usdc = "{tokens['USDC']}"
usdt = "{tokens['USDT']}"
lookalikes = []
start_block = 0
finality = [{{ wait = 2 }}]
poll_interval_ms = 200
l1_data = "none"
priority_fee_min_gwei = "0"
"""
    with open(f"{folder}/payferry.toml", "w") as out:
        out.write(text)
    return token


def main():
    binary, archive = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    server = os.environ["PAYFERRY_TEST_POSTGRES"]
    work = tempfile.mkdtemp(prefix="payferry-compat.")
    log = f"{work}/log"
    hooks = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=hooks.serve_forever, daemon=True).start()
    hooks_url = f"http://127.0.0.1:{hooks.server_address[1]}/hooks"

    def run(*arguments):
        return subprocess.run([binary, *arguments], check=True, stdout=subprocess.PIPE, stderr=open(log, "ab"), text=True).stdout.strip()

    folder = f"{work}/sandbox"
    sandbox = Process([
        binary, "sandbox", "--json", "--data-dir", folder, "--block-time-ms", str(BLOCK_TIME_MS), "--listen", "127.0.0.1:0",
        "--operator-listen", "127.0.0.1:0",
    ], log)
    api, facts = sandbox.ready["api_url"], call("GET", sandbox.ready["api_url"] + "/sandbox", sandbox.ready["api_key"])
    run("psp", "set", sandbox.ready["psp_id"], "--withdrawal-wallet", ELSEWHERE, "--send-daily-max", "1000000000",
        "--send-max", "1000000000", "--data-dir", folder)

    def pay_in_sandbox(payment, amount):
        call("POST", f"{api}/sandbox/payments/{payment['payment_id']}/pay", sandbox.ready["api_key"], {"amount": amount})

    played = Service(sandbox, sandbox.ready["api_key"], sandbox.ready["operator_token"], pay_in_sandbox)
    # The payers of the services.
    merchants = {"merchants": [{"external_id": "purse", "name": "Purse", "email": "purse@example.com", "business_id": "B-2"}]}
    played.merchant = played.send("POST", "/merchants/sync", merchants)["merchants"][0]["merchant_id"]
    purses = {
        (chain, token): played.paid("settled", "5000", token, chain)
        for chain, token in [("base", "USDC"), ("polygon", "USDT"), ("arbitrum", "USDC")]
    }

    def pay_from_purse(payment, amount):
        purse = purses[(payment["chain"], payment["currency"])]["payment_id"]
        call("POST", f"{api}/payments/{purse}/refunds", sandbox.ready["api_key"], {"amount": amount, "address": payment["intermediary_wallet"]})

    recorded, services, databases = {}, [], {}
    for name, (_, operator) in OPERATORS.items():
        for chain in CHAINS:
            funds = {"jsonrpc": "2.0", "id": 1, "method": "anvil_setBalance", "params": [operator, hex(10**24)]}
            call("POST", f"{api}/sandbox/rpc/{chain}", body=funds)
        home = f"{work}/{name}"
        database = f"{home}/payferry.db"
        if name == "postgres":
            databases[name] = f"compat_{secrets.token_hex(6)}"
            subprocess.run(["psql", "-q", f"{server}/postgres", "-c", f"CREATE DATABASE {databases[name]}"], check=True)
            database = f"{server}/{databases[name]}"
        token = configuration(home, database, api, facts)
        config = f"{home}/payferry.toml"
        deployed = run("--config", config, "deploy", "--admin", ADMIN)
        address = next(line.split('"')[1] for line in deployed.splitlines() if line.startswith("address"))
        with open(config) as file:
            text = file.read().replace("0x0000000000000000000000000000000000000000", address)
        with open(config, "w") as file:
            file.write(text)
        run("--config", config, "migrate")
        psp = run("--config", config, "psp", "create", "--name", "Northern Pay", "--fee-bps", "80")
        key = run("--config", config, "key", "create", "--psp", psp, "--scope", "full", "--expires", "never")
        run("--config", config, "psp", "set", psp, "--withdrawal-wallet", ELSEWHERE, "--send-daily-max", "1000000000",
            "--send-max", "1000000000")
        process = Process([binary, "serve", "--json", "--config", config], log)
        service = Service(process, key, token, pay_from_purse)
        service.finish(*service.play(hooks_url))
        service.recorded.update(psp_id=psp, folder=home, database=database)
        services.append(process)
        recorded[name] = service.recorded
        print(f"{name}: {', '.join(service.recorded['ids'])}", flush=True)
    played.finish(*played.play(hooks_url))
    played.recorded["psp_id"] = sandbox.ready["psp_id"]
    played.recorded["purses"] = {f"{chain} {token}": purse["payment_id"] for (chain, token), purse in purses.items()}
    recorded["sandbox"] = played.recorded
    for process in [*services, sandbox]:
        process.stop()
    dump = subprocess.run(["pg_dump", "--inserts", "--no-owner", "--no-privileges", f"{server}/{databases['postgres']}"],
                          check=True, stdout=subprocess.PIPE).stdout
    with open(f"{work}/postgres/dump.sql", "wb") as out:
        # Commands of psql are not SQL.
        out.write(b"\n".join(line for line in dump.split(b"\n") if not line.startswith(b"\\")))
    with open(f"{work}/recorded.json", "w") as out:
        json.dump(recorded, out, indent=1)
    with tarfile.open(archive, "w:gz", compresslevel=9) as out:
        for name in ["sandbox", "sqlite", "postgres", "recorded.json"]:
            out.add(f"{work}/{name}", arcname=name)
    shutil.rmtree(work)
    print(f"{archive}: {os.path.getsize(archive) // 1024} KiB")


if __name__ == "__main__":
    main()
