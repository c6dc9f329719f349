//! `/ops/customers/{customer_id}/documents/{kind}`: a customer's document, as it was uploaded. The PSP API reads documents with
//! the same code.

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use payferry_accounts::documents::{DocumentError, DocumentLocation, DocumentStore, MediaType};
use payferry_domain::customer::DocumentKind;
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::customer_documents::{Column, Entity, Model};
use payferry_entities::{Database, customers};
use payferry_httpkit::{ApiError, Away, Path};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryTrait};
use serde_json::json;
use zeroize::Zeroizing;

use crate::Operator;

/// Read a document of a customer
///
/// As it was uploaded. The read is written to the audit log.
#[utoipa::path(
    get, path = "/ops/customers/{customer_id}/documents/{kind}", tag = "Customers", operation_id = "getCustomerDocument",
    params(
        ("customer_id" = String, Path, description = "The id of the customer."),
        ("kind" = String, Path, description = "The kind of the document."),
    ),
    responses((status = 200, description = "The document.", content(
        (Vec<u8> = "application/pdf"),
        (Vec<u8> = "image/png"),
        (Vec<u8> = "image/jpeg"),
    ))),
)]
pub(crate) async fn read(
    operator: Operator,
    Path((customer_id, kind)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let reading = Reading {
        database: operator.system.database(),
        store: &operator.config.documents,
        owner: None,
        by: Actor::Operator,
        now: operator.system.clock().now(),
    };
    reading.read(&customer_id, &kind).await
}

/// One read of a document.
pub struct Reading<'a> {
    /// Database of the rows.
    pub database: &'a Database,
    /// Store of the contents.
    pub store: &'a DocumentStore,
    /// PSP that must own the customer; `None` for any PSP.
    pub owner: Option<PspId>,
    /// Reader, for the audit log.
    pub by: Actor,
    /// Time, for the audit log.
    pub now: Timestamp,
}

impl Reading<'_> {
    /// Reads the document, after the read is recorded in the audit log.
    pub async fn read(self, customer_id: &str, kind: &str) -> Result<Response, ApiError> {
        let no_customer = || ApiError::NotFound("customer");
        let no_document = || ApiError::NotFound("document");
        let id: CustomerId = customer_id.parse().map_err(|_| no_customer())?;
        let customer = customers::Entity::find_by_id(id.to_string())
            .apply_if(self.owner, |query, psp_id| query.filter(customers::Column::PspId.eq(psp_id.to_string())));
        let customer = customer.one(self.database.reader()).await?.ok_or_else(no_customer)?;
        let kind: DocumentKind = kind.parse().map_err(|_| no_document())?;
        let document = Entity::find()
            .filter(Column::CustomerId.eq(id.to_string()))
            .filter(Column::Kind.eq(kind.as_str()))
            .filter(Column::ReplacedAt.is_null())
            .one(self.database.reader())
            .await?
            .ok_or_else(no_document)?;
        let place = DocumentLocation::of_path(&document.path)
            .ok_or_else(|| ApiError::internal("a document has another path"))?;
        let media: MediaType = document.media_type.parse().map_err(ApiError::internal)?;
        let _turn = self.store.turn(self.owner).await.map_err(unavailable)?;
        let content = self.store.get(place).await.map_err(unavailable)?;
        self.write_down(&customer, &document).await?;
        Ok(answer(kind, media, content))
    }

    async fn write_down(&self, customer: &customers::Model, document: &Model) -> Result<(), ApiError> {
        let entry = NewAuditEntry {
            action: "customer.document_read".to_owned(),
            psp_id: customer.psp_id.parse().ok(),
            subject: customer.id.clone(),
            detail: json!({ "document": document.kind, "document_id": document.id }),
        };
        Ok(audit::append(self.database.writer(), &self.by, self.now, vec![entry]).await?)
    }
}

/// Response that the browser saves as a file, under a name that the service chooses, and never displays.
fn answer(kind: DocumentKind, media: MediaType, content: Zeroizing<Vec<u8>>) -> Response {
    let name = format!("attachment; filename=\"{kind}.{}\"", media.extension());
    let name = HeaderValue::from_str(&name).expect("the name is a valid header value");
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static(media.as_str())),
        (CONTENT_DISPOSITION, name),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Bytes::from_owner(content)).into_response()
}

/// Converts an error of the document store into a response.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn unavailable(error: DocumentError) -> ApiError {
    let reason = error.to_string();
    match error {
        DocumentError::Busy => ApiError::Unavailable(Away::Capacity, reason.into()),
        DocumentError::Store(_) => ApiError::Unavailable(Away::Documents, reason.into()),
        DocumentError::Missing(_) | DocumentError::Sealed(..) => ApiError::internal(reason),
    }
}
