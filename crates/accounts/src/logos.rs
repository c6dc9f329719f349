//! Logos of PSPs on the payer's page: verification of uploaded images, and their rows.
//!
//! An image is verified by decoding it, and stored as uploaded. Its hash is its address. The settings of the PSP contain the
//! hash; the caller changes both in one transaction.

use std::io::Cursor;

use image::{ImageError, ImageFormat, ImageReader, Limits};
use payferry_domain::{PspId, Timestamp};
use payferry_entities::checkout_logos::{Column, Entity, Model};
use payferry_entities::{Database, Transaction};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter};
use sha2::{Digest, Sha256};

/// Maximum size of a logo in bytes.
pub const LOGO_BYTES_MAX: usize = 128 * 1024;
/// Maximum width and height of a logo in pixels.
pub const LOGO_PIXELS_MAX: u32 = 2_048;
/// Maximum memory of the decoder: four bytes per pixel, twice.
const DECODER_BYTES_MAX: u64 = 2 * 4 * (LOGO_PIXELS_MAX as u64) * (LOGO_PIXELS_MAX as u64);
/// Accepted formats. SVG is none of them, because it can contain scripts.
const FORMATS: [ImageFormat; 3] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP];

/// A verified image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logo {
    /// SHA-256 of the content, in hexadecimal.
    pub hash: String,
    /// Media type, detected from the content.
    pub media_type: String,
    /// The image, as uploaded.
    pub content: Vec<u8>,
}

/// Reason why an image is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogoError {
    /// It has another format.
    #[error("must be a PNG, JPEG or WebP, by its content")]
    Unsupported,
    /// It has too many pixels.
    #[error("may be at most {LOGO_PIXELS_MAX} pixels wide and high")]
    TooManyPixels,
    /// It is damaged.
    #[error("cannot be decoded: the image is damaged")]
    Damaged,
}

impl Logo {
    /// Verifies an image. Decodes all of it, which can take some milliseconds.
    pub fn read(content: Vec<u8>) -> Result<Self, LogoError> {
        let format = image::guess_format(&content).ok().filter(|format| FORMATS.contains(format));
        let format = format.ok_or(LogoError::Unsupported)?;
        let mut limits = Limits::default();
        limits.max_image_width = Some(LOGO_PIXELS_MAX);
        limits.max_image_height = Some(LOGO_PIXELS_MAX);
        limits.max_alloc = Some(DECODER_BYTES_MAX);
        let mut reader = ImageReader::with_format(Cursor::new(&content), format);
        reader.limits(limits);
        reader.decode().map_err(|error| match error {
            ImageError::Limits(_) => LogoError::TooManyPixels,
            _ => LogoError::Damaged,
        })?;
        let hash = hex::encode(Sha256::digest(&content));
        Ok(Self { hash, media_type: format.to_mime_type().to_owned(), content })
    }

    /// Stores the logo of a PSP, in place of its previous one.
    pub async fn store(&self, transaction: &Transaction, psp_id: PspId, now: Timestamp) -> Result<(), DbErr> {
        let row = Model {
            psp_id: psp_id.to_string(),
            hash: self.hash.clone(),
            media_type: self.media_type.clone(),
            content: self.content.clone(),
            uploaded_at: now.as_millis(),
        };
        let mut replace = OnConflict::column(Column::PspId);
        replace.update_columns([Column::Hash, Column::MediaType, Column::Content, Column::UploadedAt]);
        Entity::insert(row.into_active_model()).on_conflict(replace).exec_without_returning(transaction).await?;
        Ok(())
    }

    /// Reads a logo by its hash, of whichever PSP.
    pub async fn find(database: &Database, hash: &str) -> Result<Option<Self>, DbErr> {
        let row = Entity::find().filter(Column::Hash.eq(hash)).one(database.reader()).await?;
        Ok(row.map(|Model { hash, media_type, content, .. }| Self { hash, media_type, content }))
    }
}

/// Deletes the logo of a PSP, if it has one.
pub async fn delete(transaction: &Transaction, psp_id: PspId) -> Result<(), DbErr> {
    Entity::delete_by_id(psp_id.to_string()).exec(transaction).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, ImageFormat};

    use super::*;

    fn picture(side: u32, format: ImageFormat) -> Vec<u8> {
        let mut content = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(side, 2).write_to(&mut content, format).unwrap();
        content.into_inner()
    }

    #[test]
    fn images_are_verified_by_their_content() {
        for (format, media_type) in
            [(ImageFormat::Png, "image/png"), (ImageFormat::Jpeg, "image/jpeg"), (ImageFormat::WebP, "image/webp")]
        {
            let content = picture(3, format);
            let logo = Logo::read(content.clone()).unwrap();
            assert_eq!((logo.media_type.as_str(), logo.hash.len()), (media_type, 64));
            let damaged = content[..content.len() / 2].to_vec();
            assert_eq!(Logo::read(damaged), Err(LogoError::Damaged), "{media_type}");
            assert_eq!(Logo::read(picture(LOGO_PIXELS_MAX + 1, format)), Err(LogoError::TooManyPixels), "{media_type}");
        }
        for other in [&b""[..], b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"GIF89a", b"%PDF-1.7", b"\x89PN"] {
            assert_eq!(Logo::read(other.to_vec()), Err(LogoError::Unsupported), "{other:?}");
        }
    }

    #[test]
    fn a_small_file_cannot_claim_a_large_image() {
        let mut content = picture(3, ImageFormat::Png);
        // The width in the header of a PNG; its checksum no longer matters, because the limit comes first or it is damaged.
        content[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Logo::read(content).is_err());
    }
}
