from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any
from unittest import TestCase
from unittest.mock import patch

from payferry import NoResponseError, Payferry, PayferryError, ProblemError
from payferry.models import InitiateRequest

from .server import Answer, Arrived, answer, cut_off, hang_up, problem, scripted

PAYMENT: InitiateRequest = {"merchant_id": "merch_1", "amount": "10", "currency": "USDC", "chain": "base"}
CREATED = answer(201, {"payment_id": "pay_1"})


class Retries(TestCase):
    def setUp(self) -> None:
        # Retries do not wait; `sleep` records how long they would.
        clock = patch("urllib3.util.retry.time")
        self.sleep = clock.start().sleep
        self.addCleanup(clock.stop)

    def initiate(self, *answers: Answer, key: str | None = None) -> tuple[Any, list[Arrived]]:
        """Returns the outcome of a call and the requests that arrived."""
        url, arrived = scripted(self, *answers)
        try:
            return Payferry(url, "sk_test_1").initiate_payment(PAYMENT, idempotency_key=key), arrived
        except PayferryError as error:
            return error, arrived

    def waits(self) -> list[float]:
        return [call.args[0] for call in self.sleep.call_args_list]

    def test_a_failure_is_followed_by_the_same_request_with_the_same_key(self) -> None:
        failures = {
            "a lost connection": hang_up,
            "half a body": cut_off,
            "408": problem(408, "body_timeout"),
            "429": problem(429, "rate_limited", Retry_After="1"),
            "500": problem(500, "internal_error"),
            "502 of a proxy": answer(502, "<html>"),
            "503": problem(503, "timed_out", Retry_After="1"),
            "409 while the first request runs": problem(409, "idempotency_request_running", Retry_After="1"),
        }
        for name, failure in failures.items():
            with self.subTest(name):
                outcome, arrived = self.initiate(failure, CREATED)
                self.assertEqual(outcome, {"payment_id": "pay_1"})
                first, second = arrived
                self.assertRegex(str(first.key), "^[0-9a-f-]{36}$")
                self.assertEqual(first, second)

    def test_a_refusal_is_not_followed_by_another_request(self) -> None:
        refusals = {
            "a conflict": problem(409, "merchant_inactive"),
            "an invalid field": problem(422, "validation_failed"),
            "a redirection": answer(307, "", Location="/elsewhere"),
            "a pause that is longer than a call waits": problem(503, "chain_paused", Retry_After="60"),
        }
        for name, refusal in refusals.items():
            with self.subTest(name):
                outcome, arrived = self.initiate(refusal, CREATED)
                self.assertIsInstance(outcome, ProblemError)
                self.assertEqual(len(arrived), 1)
        self.assertEqual(outcome.retry_after_secs, 60)
        self.assertEqual(self.waits(), [])

    def test_retry_after_is_the_time_between_two_requests(self) -> None:
        self.initiate(problem(503, "database_unavailable", Retry_After="2"), CREATED)
        self.assertEqual(self.waits(), [2])

    def test_the_last_response_is_raised_after_three_retries(self) -> None:
        outcome, arrived = self.initiate(problem(500, "internal_error"))
        self.assertEqual(outcome.code, "internal_error")
        self.assertEqual(len(arrived), 4)
        second, third = self.waits()
        self.assertTrue(0.5 <= second <= 0.75 and 1 <= third <= 1.25, self.waits())

    def test_retries_can_be_turned_off(self) -> None:
        for failure, error in [(hang_up, NoResponseError), (problem(503, "overloaded", Retry_After="1"), ProblemError)]:
            url, arrived = scripted(self, failure)
            with self.assertRaises(error):
                Payferry(url, "sk_test_1", retries_max=0).list_balances()
            self.assertEqual(len(arrived), 1)

    def test_an_error_has_the_key_that_repeats_the_call(self) -> None:
        outcome, arrived = self.initiate(hang_up, key="order-17")
        self.assertIsInstance(outcome, NoResponseError)
        self.assertIsNotNone(outcome.__cause__)
        self.assertEqual(outcome.idempotency_key, "order-17")
        self.assertEqual([one.key for one in arrived], ["order-17"] * 4)

    def test_a_request_without_a_response_in_time_is_repeated(self) -> None:
        ended = Event()
        self.addCleanup(ended.set)

        def wait(_: BaseHTTPRequestHandler) -> None:
            ended.wait()

        url, arrived = scripted(self, wait, answer(200, {"balances": []}))
        self.assertEqual(Payferry(url, "sk_test_1", timeout_secs=1).list_balances(), {"balances": []})
        self.assertGreaterEqual(len(arrived), 2)

    def test_only_changes_have_a_key(self) -> None:
        url, arrived = scripted(self, answer(200, {}))
        payferry = Payferry(url, "sk_test_1")
        payferry.list_balances()
        payferry.set_webhook({"webhook_url": "https://psp.example/"})
        payferry.deactivate_customer("cr_1")
        keys = [(one.method, one.key is not None) for one in arrived]
        self.assertEqual(keys, [("GET", False), ("PATCH", True), ("DELETE", False)])

    def test_a_parameter_of_a_path_is_encoded(self) -> None:
        url, arrived = scripted(self, answer(200, {}))
        Payferry(url, "sk_test_1").get_payment("../balances?")
        self.assertEqual(arrived[0].path, "/payments/..%2Fbalances%3F")


class Problems(TestCase):
    def test_a_problem_has_its_code_fields_and_request_id(self) -> None:
        errors = [{"field": "amount", "code": "too_small", "message": "must be positive"}]
        body = {"code": "validation_failed", "detail": "A field is not valid.", "errors": errors}
        url, _ = scripted(self, answer(422, body, X_Request_Id="req-1"))
        with self.assertRaises(ProblemError) as raised:
            Payferry(url, "sk_test_1").initiate_payment(PAYMENT, idempotency_key="key-1")
        error = raised.exception
        self.assertEqual((error.status, error.code, error.detail), (422, "validation_failed", "A field is not valid."))
        self.assertEqual((error.errors, error.request_id), (errors, "req-1"))
        self.assertEqual((error.idempotency_key, error.retry_after_secs), ("key-1", None))
        text = "A field is not valid.; amount must be positive (422 validation_failed, request req-1)"
        self.assertEqual(str(error), text)

    def test_a_response_without_a_problem_document_has_its_own_code(self) -> None:
        url, _ = scripted(self, answer(403, "<html>Blocked"))
        with self.assertRaises(ProblemError) as raised:
            Payferry(url, "sk_test_1").list_balances()
        error = raised.exception
        self.assertEqual((error.status, error.code, error.detail), (403, "unexpected_response", "<html>Blocked"))
        self.assertEqual(str(error), "<html>Blocked (403 unexpected_response)")
