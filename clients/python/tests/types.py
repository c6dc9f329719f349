"""Only checked by mypy: calls that the types accept, and calls that they refuse."""

from payferry import Payferry, WebhookEvent
from payferry.models import PaymentRecord, RefundRecord, StatementDocument


def accepted(payferry: Payferry) -> None:
    payment: PaymentRecord = payferry.initiate_payment(
        {"merchant_id": "merch_1", "amount": "1", "currency": "USDC", "chain": "best"}, idempotency_key="1"
    )
    payments: list[PaymentRecord] = list(payferry.iter_payments(status="settled"))
    refunds: list[RefundRecord] = list(payferry.iter_refunds(payment["payment_id"]))
    statement: StatementDocument = payferry.read_statement(from_="2026-01-01", to="2026-02-01")
    events: list[WebhookEvent] = [*payferry.iter_events()]
    print(payments, refunds, statement, events)


def refused(payferry: Payferry) -> None:
    payferry.initiate_payment({"merchant_id": "merch_1", "amount": "1", "currency": "USDC"})  # type: ignore[typeddict-item]
    payferry.initiate_payment(
        {"merchant_id": "merch_1", "amount": "1", "currency": "EUR", "chain": "best"}  # type: ignore[typeddict-item]
    )
    payferry.list_payments(state="settled")  # type: ignore[call-arg]
    payferry.get_payment("pay_1")["state"]  # type: ignore[typeddict-item]
