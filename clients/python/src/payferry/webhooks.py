"""Verification of webhooks by the library of Standard Webhooks."""

from collections.abc import Mapping
from typing import TypeAlias, cast

from standardwebhooks import Webhook, WebhookVerificationError

from .models import Event, WebhookTestEvent

WebhookEvent: TypeAlias = Event | WebhookTestEvent


def verify_webhook(secret: str, body: bytes, headers: Mapping[str, str]) -> WebhookEvent:
    """Returns the event of a delivery, or raises `WebhookVerificationError` if it is forged, changed or older than 5 minutes.

    `body` is the body as it arrived: parsed and written again, it has another signature.
    """
    webhook = Webhook(secret)
    try:
        return cast(WebhookEvent, webhook.verify(body, dict(headers)))
    except ValueError as error:
        # A signature or a body that cannot be decoded.
        raise WebhookVerificationError(f"the delivery cannot be read: {error}") from error
