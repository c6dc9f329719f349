import json
from datetime import UTC, datetime, timedelta
from unittest import TestCase

from payferry import WebhookVerificationError, verify_webhook
from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROTATED = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
EVENT = {"event": "payment.settled", "event_id": "evt_1", "payment_id": "pay_1", "amount": "10.00"}
BODY = json.dumps(EVENT).encode()


def headers(*secrets: str, age_secs: int = 0) -> dict[str, str]:
    """The headers of a delivery that these secrets sign."""
    sent_at = datetime.now(UTC) - timedelta(seconds=age_secs)
    return {
        "Webhook-Id": "evt_1",
        "Webhook-Timestamp": str(int(sent_at.timestamp())),
        "Webhook-Signature": " ".join(Webhook(secret).sign("evt_1", sent_at, BODY.decode()) for secret in secrets),
    }


class Webhooks(TestCase):
    def test_a_genuine_delivery_is_an_event(self) -> None:
        event = verify_webhook(SECRET, BODY, headers(SECRET))
        assert event["event"] == "payment.settled"
        self.assertEqual(event["amount"], "10.00")

    def test_a_delivery_after_a_rotation_verifies_with_the_old_and_the_new_secret(self) -> None:
        for secret in (SECRET, ROTATED):
            self.assertEqual(verify_webhook(secret, BODY, headers(ROTATED, SECRET)), EVENT)

    def test_other_deliveries_are_refused(self) -> None:
        genuine = headers(SECRET)
        earlier = headers(age_secs=60)["Webhook-Timestamp"]
        deliveries = {
            "another secret": (BODY, headers(ROTATED)),
            "a changed body": (BODY.replace(b"10.00", b"99.00"), genuine),
            "an old timestamp": (BODY, headers(SECRET, age_secs=400)),
            "a timestamp in the future": (BODY, headers(SECRET, age_secs=-400)),
            "another timestamp than the signed one": (BODY, {**genuine, "Webhook-Timestamp": earlier}),
            "another id than the signed one": (BODY, {**genuine, "Webhook-Id": "evt_2"}),
            "no signature": (BODY, headers()),
            "an unreadable signature": (BODY, {**genuine, "Webhook-Signature": "v1 ?"}),
            "a signature that is not Base64": (BODY, {**genuine, "Webhook-Signature": "v1,a"}),
            "an unreadable timestamp": (BODY, {**genuine, "Webhook-Timestamp": "yesterday"}),
            "a body that is not UTF-8": (b"\xff", genuine),
            "no headers": (BODY, {}),
        }
        for name, (body, given) in deliveries.items():
            with self.subTest(name), self.assertRaises(WebhookVerificationError):
                verify_webhook(SECRET, body, given)

    def test_a_wrong_secret_is_no_forged_delivery(self) -> None:
        with self.assertRaises(ValueError):
            verify_webhook("whsec_a", BODY, headers(SECRET))
