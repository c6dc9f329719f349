"""Requests of a client: authorization, idempotency keys, retries and pages.

The retries are those of urllib3. A `POST` or `PATCH` has an idempotency key, so every request can be repeated.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import quote, urlencode
from uuid import uuid4

from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError

from .errors import NoResponseError, ProblemError

# Requests of a call after the first one.
RETRIES_MAX = 3
# The first retry is immediate. The next ones wait twice and four times as long as this, and up to once more at random.
BACKOFF_SECS = 0.25
# The longest `Retry-After` that a call waits for. After a longer one, it fails at once.
RETRY_AFTER_SECS_MAX = 10
CONNECT_TIMEOUT_SECS = 5
# Time without a byte of the response. The service answers within 30 s, and a read of the event feed with `wait` within 32 s.
TIMEOUT_SECS = 40
# Idle connections that are kept. There can be more while more threads send requests.
CONNECTIONS_IDLE_MAX = 10
# After these, the same request can succeed. 409 is added by its header, below.
RETRIED_STATUSES = frozenset({408, 429, *range(500, 600)})


class _Retries(Retry):
    # 409 has the header only while the first request with the same idempotency key runs.
    RETRY_AFTER_STATUS_CODES = frozenset({409, 429, 503})

    def increment(self, *args: Any, **named: Any) -> Self:
        response = named.get("response")
        if response is not None and (self.get_retry_after(response) or 0) > RETRY_AFTER_SECS_MAX:
            raise MaxRetryError(named["_pool"], response.url or "", ResponseError("Retry-After is too long"))
        return super().increment(*args, **named)


class Http:
    """Sends requests to the service."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        retries_max: int = RETRIES_MAX,
        timeout_secs: float = TIMEOUT_SECS,
        pool: PoolManager | None = None,
    ) -> None:
        """`pool` is for other settings of connections, such as `urllib3.ProxyManager`."""
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._pool = pool or PoolManager(maxsize=CONNECTIONS_IDLE_MAX)
        self._timeout = Timeout(connect=CONNECT_TIMEOUT_SECS, read=timeout_secs)
        self._retries = _Retries(
            total=retries_max,
            allowed_methods=None,
            status_forcelist=RETRIED_STATUSES,
            backoff_factor=BACKOFF_SECS,
            backoff_jitter=BACKOFF_SECS,
            raise_on_status=False,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        form: Mapping[str, object] | None = None,
        content: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> BaseHTTPResponse:
        """Returns a successful response to a request, which has a JSON body, a form or a file."""
        headers = dict(self._headers)
        if method in ("POST", "PATCH"):
            idempotency_key = str(uuid4()) if idempotency_key is None else idempotency_key
            headers["Idempotency-Key"] = idempotency_key
        url = f"{self._base_url}{path}"
        if given := {name: value for name, value in (query or {}).items() if value is not None}:
            url += f"?{urlencode(given)}"
        sent: dict[str, Any] = {"json": body}
        if form is not None:
            sent = {"fields": {name: (name, part) if isinstance(part, bytes) else part for name, part in form.items()}}
        if content is not None:
            sent = {"body": content}
            headers["Content-Type"] = "application/octet-stream"
        policy: dict[str, Any] = {"retries": self._retries, "timeout": self._timeout, "redirect": False}
        try:
            response = self._pool.request(method, url, headers=headers, **sent, **policy)
        except HTTPError as error:
            raise NoResponseError(f"{method} {path}: no response: {error}", idempotency_key) from error
        if response.status >= 300:
            raise ProblemError(response, idempotency_key)
        return response

    def pages(self, path: str, items: str, query: Mapping[str, object]) -> Iterator[Any]:
        """Iterates over the items of all pages of a list."""
        while True:
            page = self.request("GET", path, query=query).json()
            yield from page[items]
            if page["next_cursor"] is None:
                return
            # A cursor excludes `after`.
            query = {**query, "after": None, "cursor": page["next_cursor"]}


def segment(text: str) -> str:
    """Encodes a segment of a path."""
    return quote(text, safe="")
