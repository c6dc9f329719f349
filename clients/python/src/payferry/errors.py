"""Exceptions of calls."""

import json
from typing import Any

from urllib3 import BaseHTTPResponse

from .models import FieldError

# The characters of a response without a problem document that a message quotes.
TEXT_CHARS_MAX = 200


class PayferryError(Exception):
    """A call without a result.

    To repeat a `POST` or `PATCH` that may have been carried out, send the same body with `idempotency_key` within 24 hours.
    """

    def __init__(self, message: str, idempotency_key: str | None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


class NoResponseError(PayferryError):
    """No response after all retries. The request may have been carried out."""


class ProblemError(PayferryError):
    """A response that is not a success.

    `code` is stable and meant for programs, and `errors` names every invalid field. After a response that does not come from
    the service, such as that of a proxy, `code` is `unexpected_response`.
    """

    def __init__(self, response: BaseHTTPResponse, idempotency_key: str | None) -> None:
        problem = _problem(response.data)
        self.status = response.status
        self.code: str = problem.get("code", "unexpected_response")
        self.detail: str = problem.get("detail", response.data[:TEXT_CHARS_MAX].decode(errors="replace"))
        self.errors: list[FieldError] = problem.get("errors", [])
        self.request_id: str | None = response.headers.get("X-Request-Id")
        self.retry_after_secs: int | None = _whole_number(response.headers.get("Retry-After"))
        fields = "".join(f"; {error['field']} {error['message']}" for error in self.errors)
        request = f", request {self.request_id}" if self.request_id else ""
        super().__init__(f"{self.detail}{fields} ({self.status} {self.code}{request})", idempotency_key)


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
