//! `GET /api/v1/customers/{customer_id}/documents/{kind}`: a document as it was uploaded.

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use payferry_actors::customers::audit::{self, Actor, Entry};
use payferry_domain::customer::DocumentKind;
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::customer_documents::{Column, Entity, Model};
use payferry_entities::{Database, customers};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;

use crate::documents::{DocumentStore, MediaType, Place};
use crate::http::auth::{Caller, Customers};
use crate::http::error::{ApiError, Problem};
use crate::http::extract::Path;
use crate::http::state::AppState;

/// A document to read and its reader.
pub(crate) struct Reading<'a> {
    /// The database with the rows.
    pub(crate) database: &'a Database,
    /// The store with the contents.
    pub(crate) store: &'a DocumentStore,
    /// The PSP that must own the customer; `None` for the operator, who may read every customer's documents.
    pub(crate) owner: Option<PspId>,
    /// The reader, for the audit log.
    pub(crate) by: Actor,
    /// The time, for the audit log.
    pub(crate) now: Timestamp,
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
            content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, description = "There is no such customer, or it has no such document.", body = Problem),
    ),
)]
pub async fn download(
    State(app): State<AppState>,
    caller: Caller<Customers>,
    Path((customer_id, kind)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let reading = Reading {
        database: app.database(),
        store: &app.config.documents,
        owner: Some(caller.psp_id),
        by: Actor::ApiKey(caller.key_id),
        now: app.clock().now(),
    };
    reading.read(&customer_id, &kind).await
}

impl Reading<'_> {
    /// Returns the document after the read is in the audit log.
    pub(crate) async fn read(self, customer_id: &str, kind: &str) -> Result<Response, ApiError> {
        let no_customer = || ApiError::NotFound("customer");
        let no_document = || ApiError::NotFound("document");
        let id: CustomerId = customer_id.parse().map_err(|_| no_customer())?;
        let mut customer = customers::Entity::find_by_id(id.to_string());
        if let Some(psp_id) = self.owner {
            customer = customer.filter(customers::Column::PspId.eq(psp_id.to_string()));
        }
        let customer = customer.one(self.database.reader()).await?.ok_or_else(no_customer)?;
        let kind: DocumentKind = kind.parse().map_err(|_| no_document())?;
        let document = Entity::find()
            .filter(Column::CustomerId.eq(id.to_string()))
            .filter(Column::Kind.eq(kind.as_str()))
            .filter(Column::ReplacedAt.is_null())
            .one(self.database.reader())
            .await?
            .ok_or_else(no_document)?;
        let place =
            Place::of_path(&document.path).ok_or_else(|| ApiError::internal("a document has a malformed path"))?;
        let media: MediaType = document.media_type.parse().map_err(ApiError::internal)?;
        let _turn = self.store.turn().await?;
        let content = self.store.get(place).await?;
        self.write_down(&customer, &document).await?;
        Ok(answer(kind, media, content))
    }

    async fn write_down(&self, customer: &customers::Model, document: &Model) -> Result<(), ApiError> {
        let entry = Entry {
            action: "customer.document_read".to_owned(),
            psp_id: customer.psp_id.parse().ok(),
            subject: customer.id.clone(),
            detail: json!({ "document": document.kind, "document_id": document.id }),
        };
        Ok(audit::append(self.database.writer(), &self.by, self.now, vec![entry]).await?)
    }
}

/// Answers with a download, which browsers never display, under a file name that the service chooses.
fn answer(kind: DocumentKind, media: MediaType, content: Vec<u8>) -> Response {
    let name = format!("attachment; filename=\"{kind}.{}\"", media.extension());
    let name = HeaderValue::from_str(&name).expect("document names are valid in a header");
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static(media.essence())),
        (CONTENT_DISPOSITION, name),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, content).into_response()
}
