from unittest import TestCase

from payferry import Payferry, ProblemError

from .server import Answer, answer, problem, scripted


def page(payments: list[str], next_cursor: str | None) -> Answer:
    return answer(200, {"next_cursor": next_cursor, "payments": [{"payment_id": payment} for payment in payments]})


class Pages(TestCase):
    def test_a_list_is_read_page_by_page_with_the_same_filters(self) -> None:
        url, arrived = scripted(self, page(["pay_4", "pay_3"], "c1"), page([], "c2"), page(["pay_1"], None))
        found = Payferry(url, "sk_test_1").iter_payments(status="settled", after="pay_5", limit=2)
        self.assertEqual([payment["payment_id"] for payment in found], ["pay_4", "pay_3", "pay_1"])
        self.assertEqual(
            [one.path for one in arrived],
            [
                "/payments?status=settled&after=pay_5&limit=2",
                "/payments?status=settled&limit=2&cursor=c1",
                "/payments?status=settled&limit=2&cursor=c2",
            ],
        )

    def test_a_page_is_requested_when_its_items_are_needed(self) -> None:
        url, arrived = scripted(self, page(["pay_2"], "c1"), page(["pay_1"], None))
        next(Payferry(url, "sk_test_1").iter_payments())
        self.assertEqual([one.path for one in arrived], ["/payments"])

    def test_a_list_of_one_payment_has_its_path(self) -> None:
        url, arrived = scripted(self, answer(200, {"next_cursor": None, "refunds": [{"id": "rf_1"}]}))
        found = list(Payferry(url, "sk_test_1").iter_refunds("pay_1"))
        self.assertEqual(found, [{"id": "rf_1"}])
        self.assertEqual(arrived[0].path, "/payments/pay_1/refunds")

    def test_a_failed_page_ends_the_iteration_with_its_error(self) -> None:
        url, _ = scripted(self, page(["pay_2"], "c1"), problem(400, "invalid_parameters"))
        payments = Payferry(url, "sk_test_1").iter_payments()
        self.assertEqual(next(payments)["payment_id"], "pay_2")
        with self.assertRaises(ProblemError):
            next(payments)
