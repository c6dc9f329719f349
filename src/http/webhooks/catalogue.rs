//! The bodies of events in the OpenAPI document: a schema and a webhook for each event.

use payferry_domain::customer::KycStatus;
use payferry_domain::ids::Id;
use payferry_domain::named::Named;
use payferry_domain::outbound::FailureReason as OutboundFailure;
use payferry_domain::payment::{
    AddressProof, EventName, Label, PublicFailure, RefundFailure, RefundRequestState, Status,
};
use payferry_domain::{
    Chain, CustomerId, EventId, MerchantId, PaymentId, PayoutId, RefundId, RefundRequestId, Token, TransferId,
    WithdrawalId,
};
use payferry_httpkit::extract::Components;
use payferry_httpkit::rule;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItemBuilder, Paths, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, Discriminator, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{ContentBuilder, HttpMethod, KnownFormat, Ref, RefOr, Required, Response, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// Body of an event: any of the bodies of [`EventName`].
pub struct Event;

/// Headers of a delivery, as Standard Webhooks defines them.
fn headers() -> [(&'static str, ObjectBuilder, &'static str); 3] {
    let with = |pattern: &str| rule::string().pattern(Some(pattern));
    [
        ("webhook-id", id::<EventId>(), "The `event_id`, the same in every attempt."),
        ("webhook-timestamp", with("^[0-9]+$"), "Time of the attempt, seconds since 1970. Refuse old ones."),
        (
            "webhook-signature",
            with("^v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)*$"),
            "`v1,` and the Base64 of the HMAC-SHA256 of `{webhook-id}.{webhook-timestamp}.{body}`, keyed with the Base64 part \
             of the signing secret. For 24 hours after a rotation, one for each secret, separated by a space.",
        ),
    ]
}

/// Subject of an event, which decides on its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Payment,
    Transfer,
    Refund,
    RefundRequest,
    Payout,
    Withdrawal,
    Customer,
    Test,
}

/// The subject of an event, the values of its `status`, and when it is sent.
fn described(name: EventName) -> (Subject, Vec<&'static str>, &'static str) {
    use EventName as Name;
    use Subject::{Customer, Payment, Payout, Refund, RefundRequest, Test, Transfer, Withdrawal};
    let any = || names::<Status>();
    let of_transfer = || ["pending", "settled", "underpaid", "failed"].to_vec();
    match name {
        Name::PaymentConfirmed => (Payment, vec!["confirmed"], "The amount due was received, final and screened."),
        Name::PaymentSettled => (Payment, vec!["settled"], "The PSP's share is in its vault."),
        Name::PaymentMismatched => (
            Payment,
            any(),
            "More or less than the amount due was received, or money that was late or of another kind.",
        ),
        Name::PaymentFailed => (Payment, vec!["failed"], "It expired, was cancelled, or screening blocked its money."),
        Name::PaymentReorged => (Payment, any(), "The chain dropped received money or a settlement."),
        Name::PayinConfirmed => (Payment, vec!["confirmed"], "As `payment.confirmed`."),
        Name::PayinSettled => (Payment, vec!["settled"], "As `payment.settled`."),
        Name::PayinSettlementFailed => {
            (Payment, any(), "The settlement failed for a permanent reason. The service tries it again.")
        }
        Name::PayinFailed => (Payment, vec!["failed"], "As `payment.failed`."),
        Name::PayinMismatched => {
            (Payment, any(), "As `payment.mismatched`, for money of the payment's token and chain.")
        }
        Name::PayinUnderpaid => (Payment, any(), "Less than the amount due was received until the deadline."),
        Name::RefundSent => {
            let mut statuses = any();
            statuses.push("underpaid");
            (Refund, statuses, "A refund is final on the chain. `refund_amount` is its amount.")
        }
        Name::RefundFailed => {
            let mut statuses = any();
            statuses.push("underpaid");
            (Refund, statuses, "A refund will not be sent. Its amount is available again.")
        }
        Name::RefundRequested => {
            let mut statuses = any();
            statuses.push("underpaid");
            (RefundRequest, statuses, "A payer asked for a refund. Only with the setting `payer_refunds`.")
        }
        Name::TransferSettled => (Transfer, vec!["settled"], "The money is in the customer's wallet."),
        Name::TransferFailed => (Transfer, of_transfer(), "The transfer will not be carried out, or not yet."),
        Name::TransferUnderpaid => {
            (Transfer, of_transfer(), "Less than the amount due was received until the deadline.")
        }
        Name::TransferMismatched => (Transfer, of_transfer(), "Money was received that the transfer does not need."),
        Name::TransferReorged => (Transfer, of_transfer(), "The chain dropped received money or the delivery."),
        Name::PayoutPending => (Payout, vec!["pending"], "The payout was accepted and its amount is reserved."),
        Name::PayoutSent => (Payout, vec!["sent"], "The payout is final on the chain."),
        Name::PayoutFailed => (Payout, vec!["failed"], "The payout will not be sent. Its amount is available again."),
        Name::WithdrawSent => (Withdrawal, vec!["sent"], "The withdrawal is final on the chain."),
        Name::WithdrawFailed => {
            (Withdrawal, vec!["failed"], "The withdrawal will not be sent. Its amount is available again.")
        }
        Name::CustomerKycUpdated => (
            Customer,
            vec![],
            "The `kyc_status` of a customer changed. Only for endpoints that name it or `customer.*`.",
        ),
        Name::CustomerConsentAccepted => {
            (Customer, vec![], "A customer accepted the terms. Only for endpoints that name it or `customer.*`.")
        }
        Name::CustomerDeactivated => {
            (Customer, vec![], "A customer was deactivated. Only for endpoints that name it or `customer.*`.")
        }
        Name::WebhookTest => (Test, vec![], "Sent by `POST /api/v1/webhook/test` only."),
    }
}

fn names<T: Named>() -> Vec<&'static str> {
    T::ALL.iter().map(|one| one.name()).collect()
}

/// Collects the fields of a body.
struct Body(ObjectBuilder);

impl Body {
    /// Adds a field that is always present.
    fn always(self, name: &str, about: &str, schema: ObjectBuilder) -> Self {
        let Self(object) = self.sometimes(name, about, schema);
        Self(object.required(name))
    }

    /// Adds a field that is absent where it does not apply.
    fn sometimes(self, name: &str, about: &str, schema: ObjectBuilder) -> Self {
        let about = (!about.is_empty()).then_some(about);
        Self(self.0.property(name, schema.description(about)))
    }
}

fn id<T: Id>() -> ObjectBuilder {
    (rule::id::<T>().schema)()
}

fn time() -> ObjectBuilder {
    rule::string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
}

fn amount() -> ObjectBuilder {
    rule::string().pattern(Some(r"^[0-9]+\.[0-9]{2,6}$")).examples(["10.00"])
}

fn hash() -> ObjectBuilder {
    rule::string().pattern(Some("^0x[0-9a-f]{64}$"))
}

/// Names, as an enum.
fn one_of<T: Named>() -> ObjectBuilder {
    rule::one_of(names::<T>())
}

/// Name of the schema of an event: `PaymentConfirmedEvent`.
fn schema_name(name: EventName) -> String {
    let words = name.as_str().split(['.', '_']);
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    words.map(capital).chain(["Event".to_owned()]).collect()
}

/// The body of an event.
fn body(name: EventName) -> Schema {
    let (subject, statuses, about) = described(name);
    let object = ObjectBuilder::new().schema_type(Type::Object).description(Some(about));
    let mut body = Body(object)
        .sometimes(
            "id",
            "The same as `event_id`. Absent from old events, as `created_at` and `updated_at`.",
            id::<EventId>(),
        )
        .always("event", "", rule::one_of([name.as_str()]))
        .always("payment_id", id_about(subject), id_of(subject))
        .always("timestamp", "Time of the event.", time())
        .sometimes("created_at", "The same as `timestamp`.", time())
        .sometimes("updated_at", "The same as `timestamp`: events do not change.", time())
        .always("event_id", "", id::<EventId>());
    if subject != Subject::Test {
        let sequence = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
        body = body.always("sequence", "Number of the event, without gaps per `payment_id` in the feed.", sequence);
    }
    if !matches!(subject, Subject::Customer | Subject::Test) {
        body = body
            .always("status", "Status at the time of the event.", rule::one_of(statuses))
            .sometimes("customer_id", "", id::<CustomerId>())
            .sometimes("reference", "As submitted.", rule::string())
            .always("amount", "The amount due, or to be sent.", amount())
            .always("token", "", one_of::<Token>())
            .sometimes("tx_hash", "The transaction of the event.", hash())
            .sometimes("metadata", "As submitted.", rule::free_schema());
        body = match subject {
            Subject::Payment | Subject::Refund => {
                body.sometimes("chain", "Absent until the payer has chosen it.", one_of::<Chain>())
            }
            _ => body.always("chain", "", one_of::<Chain>()),
        };
    }
    match subject {
        Subject::Payment | Subject::Transfer | Subject::Refund | Subject::RefundRequest => {
            body = of_payment(body);
        }
        Subject::Payout | Subject::Withdrawal => {
            body = body
                .always("address", "The recipient, EIP-55.", rule::address_schema())
                .sometimes("failure_reason", "", one_of::<OutboundFailure>())
                .sometimes("failure", "The failure reason in words.", rule::string());
        }
        Subject::Customer => {
            body = body
                .always("customer_id", "The same as `payment_id`.", id::<CustomerId>())
                .always("kyc_status", "KYC status after the change.", one_of::<KycStatus>())
                .always("is_active", "False once the customer is deactivated.", (rule::flag().schema)());
        }
        Subject::Test => {}
    }
    if subject == Subject::Refund {
        body = of_refund(body);
    }
    if subject == Subject::RefundRequest {
        body = of_refund_request(body);
    }
    body.0.build().into()
}

fn of_payment(body: Body) -> Body {
    let labels = ArrayBuilder::new().items(one_of::<Label>()).build();
    let body = body
        .sometimes("merchant_id", "", id::<MerchantId>())
        .always("amount_received", "What was received and counted.", amount())
        .sometimes("excess_received", "What was received after the amount to settle was fixed.", amount())
        .sometimes("psp_amount", "The PSP's share, while the payment is confirmed or settled.", amount())
        .sometimes("treasury_fee", "The service's share.", amount())
        .sometimes("failure_reason", "", one_of::<PublicFailure>())
        .sometimes("failure", "The failure reason in words.", rule::string());
    Body(body.0.property("labels", labels).required("labels"))
}

fn of_refund(body: Body) -> Body {
    let reasons = rule::one_of([names::<PublicFailure>(), names::<RefundFailure>()].concat());
    body.sometimes("failure_reason", "Of `refund.failed`: that of the refund.", reasons)
        .always("refund_id", "", id::<RefundId>())
        .always("refund_amount", "The amount of the refund.", amount())
        .sometimes("payment_amount", "The same as `amount`: the amount due of the payment.", amount())
        .always("refund_address", "The recipient, EIP-55.", rule::address_schema())
        .sometimes("refund_reference", "As submitted.", rule::string())
        .sometimes("refund_metadata", "As submitted.", rule::free_schema())
        .sometimes("refund_failure_reason", "The same as `failure_reason`.", one_of::<RefundFailure>())
        .sometimes("refund_failure", "The same as `failure`.", rule::string())
}

fn of_refund_request(body: Body) -> Body {
    body.always("refund_request_id", "", id::<RefundRequestId>())
        .always("refund_request_status", "Status of the request.", one_of::<RefundRequestState>())
        .always(
            "refund_address_proof",
            "signature: the account at the address sent the money and signed. none: the payer only claims the address.",
            one_of::<AddressProof>(),
        )
        .sometimes("refund_id", "The refund, if a signed request was carried out at once.", id::<RefundId>())
        .always("refund_amount", "The amount of the refund.", amount())
        .always("payment_amount", "The same as `amount`: the amount due of the payment.", amount())
        .always("refund_address", "The recipient, EIP-55.", rule::address_schema())
        .always("refund_chain", "The chain on which the money is.", one_of::<Chain>())
        .always("refund_token_address", "The contract of the token of the money, EIP-55.", rule::address_schema())
}

fn id_of(subject: Subject) -> ObjectBuilder {
    match subject {
        Subject::Payment | Subject::Refund | Subject::RefundRequest => {
            rule::id_of(&[PaymentId::PREFIX, TransferId::PREFIX])
        }
        Subject::Transfer => id::<TransferId>(),
        Subject::Payout => id::<PayoutId>(),
        Subject::Withdrawal => id::<WithdrawalId>(),
        Subject::Customer => id::<CustomerId>(),
        Subject::Test => rule::one_of(["pay_test"]),
    }
}

fn id_about(subject: Subject) -> &'static str {
    match subject {
        Subject::Payment => "",
        Subject::Refund | Subject::RefundRequest => "The id of the payment or transfer.",
        Subject::Transfer => "The id of the transfer.",
        Subject::Payout => "The id of the payout.",
        Subject::Withdrawal => "The id of the withdrawal.",
        Subject::Customer => "The id of the customer.",
        Subject::Test => "Not a payment.",
    }
}

/// Events that are stored. The test event is only sent.
fn stored() -> impl Iterator<Item = EventName> {
    EventName::ALL.into_iter().filter(|name| *name != EventName::WebhookTest)
}

fn reference(name: EventName) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(schema_name(name)))
}

impl PartialSchema for Event {
    fn schema() -> RefOr<Schema> {
        let bodies = stored().fold(OneOfBuilder::new(), |bodies, name| bodies.item(reference(name)));
        let names = stored().map(|name| (name.as_str(), format!("#/components/schemas/{}", schema_name(name))));
        let about = "The body of an event, as it is signed and sent. `event` decides on its fields.";
        let one_of = bodies.discriminator(Some(Discriminator::with_mapping("event", names))).description(Some(about));
        Schema::OneOf(one_of.build()).into()
    }
}

impl ToSchema for Event {
    fn schemas(schemas: &mut Components) {
        schemas.extend(EventName::ALL.map(|name| (schema_name(name), body(name).into())));
    }
}

/// The webhooks: a request to the PSP's endpoint for each event.
pub fn webhooks() -> Paths {
    EventName::ALL.into_iter().fold(PathsBuilder::new(), |paths, name| paths.path(name.as_str(), webhook(name))).build()
}

fn webhook(name: EventName) -> utoipa::openapi::PathItem {
    let content = ContentBuilder::new().schema(Some(reference(name))).build();
    let request = RequestBodyBuilder::new().required(Some(Required::True)).content("application/json", content).build();
    let acknowledged = "Acknowledged. Every other answer, and none within 5 seconds, is a failed attempt.";
    let mut operation = OperationBuilder::new()
        .tag("Webhooks")
        .operation_id(Some(format!("on{}", schema_name(name))))
        .summary(Some(name.as_str()))
        .description(Some(described(name).2))
        .securities(Some([]))
        .request_body(Some(request))
        .response("2XX", Response::new(acknowledged));
    for (header, schema, about) in headers() {
        let parameter = ParameterBuilder::new()
            .name(header)
            .parameter_in(ParameterIn::Header)
            .required(Required::True)
            .description(Some(about))
            .schema(Some(schema));
        operation = operation.parameter(parameter);
    }
    PathItemBuilder::new().operation(HttpMethod::Post, operation).build()
}
