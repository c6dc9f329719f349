"""The client that openapi-python-client makes of the document: initiates a payment, creates a customer, and reads both back.

It fails if a call fails or a value is not what was sent.
"""

import datetime
import sys

from payferry_client import AuthenticatedClient
from payferry_client.api.customers import create_customers, get_customer
from payferry_client.api.merchants import sync_merchants
from payferry_client.api.payments import get_payment, initiate_payment
from payferry_client.models.customer_answer import CustomerAnswer
from payferry_client.models.customers_answer import CustomersAnswer
from payferry_client.models.individual_request import IndividualRequest
from payferry_client.models.individual_request_type import IndividualRequestType
from payferry_client.models.initiate_request import InitiateRequest
from payferry_client.models.initiate_request_chain import InitiateRequestChain
from payferry_client.models.initiate_request_currency import InitiateRequestCurrency
from payferry_client.models.payment_record import PaymentRecord
from payferry_client.models.postal_address import PostalAddress
from payferry_client.models.problem import Problem
from payferry_client.models.sync_answer import SyncAnswer
from payferry_client.models.sync_item import SyncItem
from payferry_client.models.sync_request import SyncRequest


def main(base_url: str, api_key: str) -> None:
    client = AuthenticatedClient(base_url=base_url, token=api_key, raise_on_unexpected_status=True)

    shop = SyncItem(external_id="py", name="Shop", email="shop@example.com", business_id="1")
    synced = sync_merchants.sync(client=client, body=SyncRequest(merchants=[shop]))
    assert isinstance(synced, SyncAnswer), synced

    merchant_id = synced.merchants[0].merchant_id
    request = InitiateRequest(
        merchant_id=merchant_id,
        amount="10.50",
        currency=InitiateRequestCurrency.USDC,
        chain=InitiateRequestChain.BASE,
    )
    initiated = initiate_payment.sync(client=client, body=request)
    assert isinstance(initiated, PaymentRecord), initiated
    payment = get_payment.sync(initiated.payment_id, client=client)
    assert isinstance(payment, PaymentRecord), payment
    assert (payment.amount, payment.status) == ("10.50", "pending")
    assert payment.intermediary_wallet == initiated.intermediary_wallet

    customer = IndividualRequest(
        type_=IndividualRequestType.INDIVIDUAL,
        country="USA",
        currency="USD",
        email="ada@example.com",
        first_name="Ada",
        last_name="Lovelace",
        dob=datetime.date(1990, 12, 10),
        government_id_number="P1234567",
        residential_address=PostalAddress(
            street_line_1="1 Harbour Road", city="Oakland", region="CA", zip_="94607", country="USA"
        ),
    )
    created = create_customers.sync(client=client, body=customer)
    assert isinstance(created, CustomersAnswer), created
    read = get_customer.sync(created.customers[0].id, client=client)
    assert isinstance(read, CustomerAnswer), read
    assert (read.customer.email, read.customer.kyc_status) == ("ada@example.com", "pending")

    refused = get_payment.sync("pay_none", client=client)
    assert isinstance(refused, Problem) and refused.code == "payment_not_found", refused
    print(initiated.payment_id, created.customers[0].id)


main(sys.argv[1], sys.argv[2])
