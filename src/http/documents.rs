//! Customers' documents over HTTP: `PATCH /api/v1/customers/uploads`, which stores them encrypted, and
//! `GET /api/v1/customers/{customer_id}/documents/{kind}`, which reads one as it was uploaded.
//!
//! Each read is written to the audit log before the content is sent. `payferry_accounts::documents` stores and encrypts
//! the contents.

use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Multipart, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;
use payferry_accounts::documents::{
    DOCUMENT_BYTES_MAX, DocumentLocation, DocumentStore, DocumentTurn, MediaType, QuotaError,
};
use payferry_domain::customer::{Command, CustomerKind, DocumentKind, Rejection};
use payferry_domain::{CustomerId, DocumentId, KeyId, PspId, Timestamp};
use payferry_entities::customers::Model;
use payferry_entities::{Transaction, customer_documents};
use payferry_httpkit::extract::{RequestRefusal, closed};
use payferry_httpkit::idempotency::Idempotency;
use payferry_httpkit::{Answer, ApiError, Caller, Customers, FieldError, Path, Problem, rule};
use payferry_journal::audit::Actor;
use payferry_operator::customers::documents::{Reading, unavailable};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::customers::{self, CustomerRecord};
use super::state::{AppState, OneOf};

/// The field that names the customer.
const CUSTOMER_ID: &str = "customer_id";

/// Documents of a customer: the customer, and at least one document. The handler reads the same names.
pub struct UploadRequest;

impl PartialSchema for UploadRequest {
    fn schema() -> RefOr<Schema> {
        let id = (rule::id::<CustomerId>().schema)().description(Some("The customer."));
        let form = ObjectBuilder::new().schema_type(Type::Object).property(CUSTOMER_ID, id).required(CUSTOMER_ID);
        let document = |kind: &DocumentKind| {
            let (individuals, businesses) =
                (CustomerKind::Individual.takes(*kind), CustomerKind::Business.takes(*kind));
            let of = match (individuals, businesses) {
                (true, false) => " Individuals only.",
                (false, true) => " Businesses only.",
                _ => "",
            };
            let about = format!("PDF, PNG or JPEG, at most {} MiB.{of}", DOCUMENT_BYTES_MAX / (1024 * 1024));
            ObjectBuilder::new()
                .schema_type(Type::String)
                .content_media_type("application/octet-stream")
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
                .description(Some(about))
        };
        let form = DocumentKind::ALL.iter().fold(form, |form, kind| form.property(kind.as_str(), document(kind)));
        closed(form).min_properties(Some(2)).build().into()
    }
}

impl ToSchema for UploadRequest {}

/// The customer with its documents.
#[derive(Serialize, ToSchema)]
pub struct UploadAnswer {
    message: &'static str,
    customer: CustomerRecord,
}

/// One document of the form.
struct Upload {
    kind: DocumentKind,
    media: MediaType,
    content: Vec<u8>,
}

/// Upload documents of a customer
///
/// PDF, PNG or JPEG, detected from the content, at most 5 MiB each. Each replaces the previous document of its kind;
/// other documents stay. Documents are stored encrypted; file names are not stored.
#[utoipa::path(
    patch, path = "/api/v1/customers/uploads", tag = "Customers", operation_id = "uploadDocuments",
    request_body(content = UploadRequest, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "Stored.", body = UploadAnswer),
        (status = 404, description = "`customer_not_found`.", body = Problem),
        (status = 409, description = "`customer_inactive`, `document_quota_exceeded`.", body = Problem),
        (status = 413, description = "`document_too_large`: every such field is named.", body = Problem),
        (status = 415, description = "The body is not multipart/form-data.", body = Problem),
        (status = 422, description = "Every invalid field is named, and nothing was stored.", body = Problem),
    ),
)]
pub async fn upload(State(app): State<AppState>, form: Form) -> Result<Response, ApiError> {
    let Form { psp_id, key_id, idempotency, parts, .. } = form;
    let (customer_id, uploads) = read(parts)?;
    check(&customers::own(&app, psp_id, &customer_id.to_string()).await?, &uploads)?;

    let (store, now) = (&app.config.documents, app.clock().now());
    let bytes = uploads.iter().map(|upload| upload.content.len() as u64).sum();
    store.check_quota(app.database(), psp_id, bytes).await.map_err(|error| match error {
        QuotaError::Exceeded { .. } => ApiError::Conflict("document_quota_exceeded", error.to_string(), Vec::new()),
        QuotaError::Database(error) => error.into(),
    })?;
    let stored = store_all(store, customer_id, uploads, now).await?;
    // From here on stored objects are not removed on error, since the commit's outcome may be unknown. The sweep
    // compares them with the rows.
    let mut opened = app.system.open_customer(customer_id, Some(psp_id)).await?;
    let command = Command::AddDocuments(stored.iter().map(|(_, kind, _)| *kind).collect());
    if let Err(refused) = opened.apply(&command, &Actor::ApiKey(key_id), now).await {
        remove(store, &stored).await;
        return Err(refused.into());
    }
    write(opened.transaction(), &stored, now).await?;
    let customer = CustomerRecord::read(&app, opened.transaction(), &opened.row).await?;
    let answer = Answer::ok(&UploadAnswer { message: "Documents uploaded", customer })?;
    idempotency.commit(opened.into_transaction(), answer).await
}

/// Reads the form and reports every fault of it.
fn read(parts: Vec<FormPart>) -> Result<(CustomerId, Vec<Upload>), ApiError> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, code: &'static str, message: String| {
        faults.push(FieldError::new(field, code, message));
    };
    let (mut customer_id, mut uploads, mut seen) = (None, Vec::new(), Vec::new());
    let mut too_large = false;
    for FormPart { name, content } in parts {
        if seen.contains(&name) {
            fault(&name, "duplicate", "occurs twice in this form".to_owned());
            continue;
        }
        seen.push(name.clone());
        if name == CUSTOMER_ID {
            let id = content.as_deref().and_then(|content| std::str::from_utf8(content).ok());
            match id.map(str::trim).and_then(|id| id.parse::<CustomerId>().ok()) {
                Some(id) => customer_id = Some(id),
                None => fault(&name, "invalid_id", "is not a valid id".to_owned()),
            }
            continue;
        }
        let Ok(kind) = name.parse::<DocumentKind>() else {
            let names = DocumentKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
            fault(&name, "unknown_field", format!("is not a known field; known fields are {CUSTOMER_ID}, {names}"));
            continue;
        };
        match content {
            None => {
                too_large = true;
                fault(&name, "too_large", format!("may have at most {DOCUMENT_BYTES_MAX} bytes"));
            }
            Some(content) if content.is_empty() => fault(&name, "empty", "must not be empty".to_owned()),
            Some(content) => match MediaType::of(&content) {
                Some(media) => uploads.push(Upload { kind, media, content }),
                None => fault(&name, "unsupported_type", "must be a PDF, PNG or JPEG, by its content".to_owned()),
            },
        }
    }
    if !seen.iter().any(|name| name == CUSTOMER_ID) {
        fault(CUSTOMER_ID, "required", "is required".to_owned());
    }
    if !seen.iter().any(|name| name.parse::<DocumentKind>().is_ok()) {
        fault("documents", "required", "must contain at least one document".to_owned());
    }
    match customer_id {
        _ if too_large => Err(ApiError::DocumentTooLarge(faults)),
        Some(id) if faults.is_empty() => Ok((id, uploads)),
        _ => Err(ApiError::Validation(faults)),
    }
}

/// Checks that the customer accepts these documents, before anything is stored.
fn check(row: &Model, uploads: &[Upload]) -> Result<(), ApiError> {
    let kind: CustomerKind = row.kind.parse().map_err(|_| ApiError::internal("a customer's kind cannot be read"))?;
    let mismatch = |upload: &Upload| {
        FieldError::new(upload.kind.as_str(), "not_for_this_type", format!("is not a document of an {kind}"))
    };
    let mismatches: Vec<_> = uploads.iter().filter(|upload| !kind.takes(upload.kind)).map(mismatch).collect();
    if !mismatches.is_empty() {
        return Err(ApiError::Validation(mismatches));
    }
    if !row.is_active {
        return Err(Rejection::CustomerInactive.into());
    }
    Ok(())
}

/// A document whose object is in the store.
type Stored = (DocumentLocation, DocumentKind, customer_documents::Model);

async fn store_all(
    store: &DocumentStore,
    customer_id: CustomerId,
    uploads: Vec<Upload>,
    now: Timestamp,
) -> Result<Vec<Stored>, ApiError> {
    let mut stored = Vec::new();
    for Upload { kind, media, content } in uploads {
        let place = DocumentLocation { customer_id, document_id: DocumentId::generate() };
        let row = customer_documents::Model {
            id: place.document_id.to_string(),
            customer_id: customer_id.to_string(),
            kind: kind.to_string(),
            path: place.to_string(),
            media_type: media.as_str().to_owned(),
            size: i64::try_from(content.len()).unwrap_or(i64::MAX),
            uploaded_at: now.as_millis(),
            replaced_at: None,
        };
        if let Err(error) = store.put(place, content).await {
            remove(store, &stored).await;
            return Err(unavailable(error));
        }
        stored.push((place, kind, row));
    }
    Ok(stored)
}

/// Removes objects that will have no row. The sweep deletes those that this fails to remove.
async fn remove(store: &DocumentStore, stored: &[Stored]) {
    for (place, ..) in stored {
        if let Err(error) = store.delete(*place).await {
            tracing::debug!(%error, "an object without a row could not be deleted; the sweep will delete it");
        }
    }
}

/// Replaces the current rows with the new ones.
async fn write(transaction: &Transaction, stored: &[Stored], now: Timestamp) -> Result<(), DbErr> {
    use customer_documents::{Column, Entity};
    for (place, kind, row) in stored {
        Entity::update_many()
            .col_expr(Column::ReplacedAt, Expr::value(now.as_millis()))
            .filter(Column::CustomerId.eq(place.customer_id.to_string()))
            .filter(Column::Kind.eq(kind.as_str()))
            .filter(Column::ReplacedAt.is_null())
            .exec(transaction)
            .await?;
        Entity::insert(row.clone().into_active_model()).exec_without_returning(transaction).await?;
    }
    Ok(())
}

/// Read a document of a customer
///
/// Returns the last uploaded document of this kind. Each read is written to the audit log. Replaced documents cannot be
/// read.
#[utoipa::path(
    get, path = "/api/v1/customers/{customer_id}/documents/{kind}", tag = "Customers", operation_id = "getDocument",
    params(
        ("customer_id" = String, Path, description = "The customer's id."),
        ("kind" = String, Path, description = "proof_of_residential_address, incorporation_certificate, \
            proof_of_business_address or verification_document."),
    ),
    responses(
        (status = 200, description = "The document: PDF, PNG or JPEG, as `Content-Type` says.",
            content(
                (Vec<u8> = "application/pdf"),
                (Vec<u8> = "image/png"),
                (Vec<u8> = "image/jpeg"),
            )),
        (status = 404, description = "There is no such customer, or it has no such document.", body = Problem),
    ),
)]
pub async fn download(parts: OneOf<Customers, (String, String)>) -> Result<Response, ApiError> {
    let (State(app), caller, Path((customer_id, kind))) = parts;
    let reading = Reading {
        database: app.database(),
        store: &app.config.documents,
        owner: Some(caller.psp_id),
        by: Actor::ApiKey(caller.key_id),
        now: app.clock().now(),
    };
    reading.read(&customer_id, &kind).await
}

/// Bytes of a form: one document of each kind, plus room to read past one that is too large, so that the sender can
/// receive the refusal.
pub const FORM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Parts of a form.
pub const PARTS_MAX: usize = 16;
/// Characters of a part's name that are stored.
const NAME_CHARS_MAX: usize = 64;

/// A PATCH request with files: its authenticated sender, its parts within limits, and its idempotency key.
pub struct Form {
    /// The tenant.
    pub psp_id: PspId,
    /// The key.
    pub key_id: KeyId,
    /// The request's idempotency key.
    pub idempotency: Idempotency,
    /// The parts in the order of the body.
    pub parts: Vec<FormPart>,
    /// Permit to process them.
    _turn: DocumentTurn,
}

/// A part of a form. The file name and the declared media type are ignored.
pub struct FormPart {
    /// The field's name, truncated if it is very long.
    pub name: String,
    /// The content; `None` if it exceeds the size limit of a document.
    pub content: Option<Vec<u8>>,
}

impl FromRequest<AppState> for Form {
    type Rejection = RequestRefusal;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, RequestRefusal> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::<Customers>::from_request_parts(&mut parts, app).await?;
        if !is_multipart(&parts) {
            return Err(ApiError::NotMultipart.into());
        }
        let mut request = Request::from_parts(parts.clone(), body);
        DefaultBodyLimit::max(FORM_BYTES_MAX).apply(&mut request);
        let form = Multipart::from_request(request, app).await;
        let form = form.map_err(|_| ApiError::MalformedMultipart("the header Content-Type names no boundary"))?;
        let form = read_parts(form).await?;
        // The body has arrived, so a slow sender takes no turn from others.
        let turn = app.config.documents.turn(Some(caller.psp_id)).await.map_err(unavailable)?;
        match Idempotency::begin(app, caller.psp_id, &parts, &fingerprint(&form), None).await? {
            Err(first_answer) => Err(RequestRefusal(first_answer)),
            Ok(idempotency) => {
                Ok(Self { psp_id: caller.psp_id, key_id: caller.key_id, idempotency, parts: form, _turn: turn })
            }
        }
    }
}

async fn read_parts(mut form: Multipart) -> Result<Vec<FormPart>, ApiError> {
    let mut parts = Vec::new();
    while let Some(mut field) = form.next_field().await.map_err(|error| unreadable(&error))? {
        let name = field.name().ok_or(ApiError::MalformedMultipart("a part has no name"))?;
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        let mut content = Some(Vec::new());
        while let Some(chunk) = field.chunk().await.map_err(|error| unreadable(&error))? {
            content = content.filter(|read| read.len() + chunk.len() <= DOCUMENT_BYTES_MAX);
            if let Some(read) = &mut content {
                read.extend_from_slice(&chunk);
            }
        }
        parts.push(FormPart { name, content });
        if parts.len() > PARTS_MAX {
            return Err(ApiError::MalformedMultipart("it has too many parts"));
        }
    }
    Ok(parts)
}

fn unreadable(error: &MultipartError) -> ApiError {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::TooLarge(FORM_BYTES_MAX);
    }
    ApiError::MalformedMultipart("it ended early, or its boundary differs from the one in the header Content-Type")
}

/// Identifies a form by its names and contents for idempotency. The boundary differs each time a form is sent, and the
/// parts may come in any order.
fn fingerprint(parts: &[FormPart]) -> Vec<u8> {
    let mut hashes: Vec<[Vec<u8>; 2]> = parts
        .iter()
        .map(|part| {
            [part.name.as_bytes(), part.content.as_deref().unwrap_or_default()]
                .map(|text| Sha256::digest(text).to_vec())
        })
        .collect();
    hashes.sort();
    hashes.into_iter().flatten().flatten().collect()
}

fn is_multipart(parts: &Parts) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("multipart/form-data")
}
