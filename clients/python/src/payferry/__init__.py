"""Client of Payferry. `Payferry` has a method for each operation; `verify_webhook` checks a delivery."""

from standardwebhooks import WebhookVerificationError

from . import models
from .client import Payferry
from .errors import NoResponseError, PayferryError, ProblemError
from .webhooks import WebhookEvent, verify_webhook

__all__ = [
    "NoResponseError",
    "Payferry",
    "PayferryError",
    "ProblemError",
    "WebhookEvent",
    "WebhookVerificationError",
    "models",
    "verify_webhook",
]
