"""Uses a running sandbox: PAYFERRY_URL and PAYFERRY_API_KEY name it."""

import os
import time
from base64 import b64decode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from unittest import TestCase, skipUnless
from urllib.parse import urlsplit
from uuid import uuid4

import urllib3
from payferry import Payferry, ProblemError, WebhookEvent, WebhookVerificationError, verify_webhook
from payferry.models import InitiateRequest

from .server import POLL_SECS

# The longest time until a payment is settled. A sandbox needs a few seconds.
SETTLED_SECS_MAX = 60
# A PNG of one pixel.
LOGO = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

URL = os.environ.get("PAYFERRY_URL", "")
API_KEY = os.environ.get("PAYFERRY_API_KEY", "")


class Receiver:
    """A receiver of webhooks, which it adds to the account."""

    def __init__(self, test: TestCase, payferry: Payferry) -> None:
        self.deliveries: list[tuple[bytes, Mapping[str, str]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.deliveries.append((body, dict(self.headers)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, args=[POLL_SECS], daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        created = payferry.create_webhook_endpoint({"url": f"http://127.0.0.1:{server.server_port}/"})
        self.endpoint_id, self.secret = created["id"], created["signing_secret"]

    def wait(self, name: str, payment_id: str) -> WebhookEvent:
        """Waits for an event of a payment. All deliveries must be genuine."""
        end = time.monotonic() + SETTLED_SECS_MAX
        while time.monotonic() < end:
            for body, headers in list(self.deliveries):
                event = verify_webhook(self.secret, body, headers)
                if event["event"] == name and event["payment_id"] == payment_id:
                    return event
            time.sleep(0.1)
        raise TimeoutError(f"no {name} within {SETTLED_SECS_MAX} s")


@skipUnless(URL, "PAYFERRY_URL and PAYFERRY_API_KEY name no sandbox")
class Sandbox(TestCase):
    def setUp(self) -> None:
        self.payferry = Payferry(URL, API_KEY)

    def test_a_payment_goes_from_merchant_to_settled(self) -> None:
        receiver = Receiver(self, self.payferry)
        synced = self.payferry.sync_merchants(
            {
                "merchants": [
                    {"external_id": str(uuid4()), "name": "Shop", "email": "shop@example.com", "business_id": "B-1"}
                ]
            }
        )
        merchant_id, key = synced["merchants"][0]["merchant_id"], str(uuid4())
        request: InitiateRequest = {"merchant_id": merchant_id, "amount": "25", "currency": "USDC", "chain": "base"}
        payment = self.payferry.initiate_payment(request, idempotency_key=key)
        repeated = self.payferry.initiate_payment(request, idempotency_key=key)
        other_id = self.payferry.initiate_payment(request)["payment_id"]
        payment_id = payment["payment_id"]
        self.assertEqual(payment["status"], "pending")
        self.assertEqual(repeated["payment_id"], payment_id)
        self.assertNotEqual(other_id, payment_id)

        pay = f"{URL}/sandbox/payments/{payment_id}/pay"
        paid = urllib3.request("POST", pay, headers={"Authorization": f"Bearer {API_KEY}"})
        self.assertLess(paid.status, 300, paid.data)
        settled = receiver.wait("payment.settled", payment_id)
        assert settled["event"] == "payment.settled"
        self.assertEqual(settled["amount_received"], "25.00")
        receiver.wait("payment.confirmed", payment_id)

        read = self.payferry.get_payment(payment_id)
        result = (read["status"], read["amount_received"], read["kyt_verdict"])
        self.assertEqual(result, ("settled", "25.00", "allow"))

        of_merchant = self.payferry.iter_payments(merchant_id=merchant_id, limit=1)
        self.assertEqual([one["payment_id"] for one in of_merchant], [other_id, payment_id])
        settled_ones = self.payferry.iter_payments(merchant_id=merchant_id, status="settled", limit=1)
        self.assertEqual([one["payment_id"] for one in settled_ones], [payment_id])

    def test_a_delivery_verifies_with_both_secrets_after_a_rotation(self) -> None:
        receiver = Receiver(self, self.payferry)
        rotated = self.payferry.rotate_webhook_endpoint_secret(receiver.endpoint_id)
        self.assertTrue(self.payferry.test_webhook_endpoint(receiver.endpoint_id)["delivered"])
        [(body, headers)] = receiver.deliveries
        for secret in (receiver.secret, rotated["signing_secret"]):
            self.assertEqual(verify_webhook(secret, body, headers)["event"], "webhook.test")
            with self.assertRaises(WebhookVerificationError):
                verify_webhook(secret, body + b" ", headers)

    def test_a_document_of_a_customer_is_read_back(self) -> None:
        created = self.payferry.create_customers(
            {
                "type": "individual",
                "country": "USA",
                "currency": "USD",
                "email": "ada@example.com",
                "first_name": "Ada",
                "last_name": "Lovelace",
                "dob": "1990-12-10",
                "government_id_number": "P1234567",
                "residential_address": {
                    "street_line_1": "1 Harbour Road",
                    "city": "Oakland",
                    "region": "CA",
                    "zip": "94607",
                    "country": "USA",
                },
            }
        )
        customer_id, proof = created["customers"][0]["id"], b"%PDF-1.4\n%%EOF\n"
        self.payferry.upload_documents({"customer_id": customer_id, "proof_of_residential_address": proof})
        self.assertEqual(self.payferry.get_document(customer_id, "proof_of_residential_address"), proof)

        logo_url = self.payferry.upload_logo(LOGO)["checkout"]["logo_url"]
        assert logo_url is not None
        self.assertEqual(self.payferry.request("GET", urlsplit(logo_url).path).data, LOGO)
        self.assertIsNone(self.payferry.delete_logo()["checkout"]["logo_url"])
        customer = self.payferry.get_customer(customer_id)["customer"]
        self.assertEqual((customer["email"], customer["kyc_status"]), ("ada@example.com", "pending"))

    def test_a_refusal_is_a_problem(self) -> None:
        with self.assertRaises(ProblemError) as raised:
            self.payferry.initiate_payment(
                {"merchant_id": "merch_1", "amount": "-1", "currency": "USDC", "chain": "base"}
            )
        error = raised.exception
        self.assertEqual((error.status, error.code), (422, "validation_failed"))
        self.assertIn("amount", [one["field"] for one in error.errors])
        self.assertIsNotNone(error.request_id)
        with self.assertRaises(ProblemError) as raised:
            Payferry(URL, "sk_test_1").list_balances()
        self.assertEqual((raised.exception.status, raised.exception.code), (401, "api_key_malformed"))
