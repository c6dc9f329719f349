//! A PATCH request with files: its authenticated sender, its parts within limits, and its idempotency key.

use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Multipart, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use payferry_accounts::documents::DOCUMENT_BYTES_MAX;
use payferry_domain::{KeyId, PspId};
use payferry_httpkit::extract::Refusal;
use payferry_httpkit::idempotency::Idempotency;
use payferry_httpkit::{ApiError, Caller, Requires};
use payferry_operator::customers::documents::unavailable;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use crate::http::state::AppState;

/// Bytes of a form: one document of each kind, plus room to read past one that is too large, so that the sender can
/// receive the refusal.
pub const FORM_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Parts of a form.
pub const PARTS_MAX: usize = 16;
/// Characters of a part's name that are stored.
const NAME_CHARS_MAX: usize = 64;

/// A form with files, sent with a key that has the scope `S`.
pub struct Form<S: Requires> {
    /// The tenant.
    pub psp_id: PspId,
    /// The key.
    pub key_id: KeyId,
    /// The request's idempotency key.
    pub idempotency: Idempotency,
    /// The parts in the order of the body.
    pub parts: Vec<FormPart>,
    /// Permit for holding the parts in memory.
    _turn: OwnedSemaphorePermit,
    scope: std::marker::PhantomData<S>,
}

/// A part of a form. The file name and the declared media type are ignored.
pub struct FormPart {
    /// The field's name, truncated if it is very long.
    pub name: String,
    /// The content; `None` if it exceeds the size limit of a document.
    pub content: Option<Vec<u8>>,
}

impl<S: Requires> FromRequest<AppState> for Form<S> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::<S>::from_request_parts(&mut parts, app).await?;
        if !is_multipart(&parts) {
            return Err(ApiError::NotMultipart.into());
        }
        let turn = app.config.documents.turn().await.map_err(unavailable)?;
        let mut request = Request::from_parts(parts.clone(), body);
        DefaultBodyLimit::max(FORM_BYTES_MAX).apply(&mut request);
        let form = Multipart::from_request(request, app).await;
        let form = form.map_err(|_| ApiError::MalformedMultipart("the header Content-Type names no boundary"))?;
        let form = read_parts(form).await?;
        match Idempotency::begin(app, caller.psp_id, &parts, &fingerprint(&form)).await? {
            Err(first_answer) => Err(Refusal(first_answer)),
            Ok(idempotency) => Ok(Self {
                psp_id: caller.psp_id,
                key_id: caller.key_id,
                idempotency,
                parts: form,
                _turn: turn,
                scope: std::marker::PhantomData,
            }),
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
