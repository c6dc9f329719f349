"""What schemathesis would take for a difference although it is none."""

from itertools import count
from typing import Any

import schemathesis

IDEMPOTENCY_KEY = "Idempotency-Key"
# Leaves room for a number within the length that the service accepts.
KEY_CHARS_MAX = 200
requests = count()


@schemathesis.hook
def filter_query(context: Any, query: Any) -> bool:
    """Leaves out repeated parameters, of which the first one counts. Lists and objects are sent as repeated parameters."""
    return not any(isinstance(value, (list, dict)) for value in dict(query or {}).values())


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Uses each idempotency key once. A repeated key returns the first response, although its resource may be deleted."""
    if case.meta is not None and case.meta.generation.mode.is_negative:
        # The service refuses it. A changed header would make schemathesis add the headers that the case leaves out.
        return
    key = (case.headers or {}).get(IDEMPOTENCY_KEY)
    if isinstance(key, str) and 0 < len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable():
        case.headers[IDEMPOTENCY_KEY] = f"{key}-{next(requests)}"
