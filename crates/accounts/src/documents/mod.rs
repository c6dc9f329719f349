//! Customers' documents: encrypted objects in a folder or in an S3-compatible bucket.
//!
//! Owned here: the accepted media types, and the storage, encryption and removal of objects (`store`). Deliberately absent: the rows, which `payferry_journal::customers` writes, and the
//! routes.
//!
//! An object is written before its row, so that no row names a missing object. The service chooses the object's name;
//! the sender's file name is not stored.

mod store;

pub use store::{
    AT_ONCE_MAX, AT_ONCE_PER_PSP, Bucket, DocumentError, DocumentLocation, DocumentStore, DocumentTurn, ORPHAN_AGE,
    PSP_BYTES_MAX, QuotaError, delete_replaced, sweep, sweep_on,
};

/// Maximum size of a document in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 5 * 1024 * 1024;

payferry_domain::named! {
    /// An accepted media type, detected from the content. File names and declared types are not trusted. Its name is the
    /// value of `Content-Type`.
    MediaType, "the media types of documents" {
        /// PDF.
        Pdf = "application/pdf",
        /// PNG.
        Png = "image/png",
        /// JPEG.
        Jpeg = "image/jpeg",
    }
}

impl MediaType {
    /// Detects the media type from the first bytes; `None` if it is not accepted.
    pub fn of(content: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|media| match media {
            Self::Pdf => infer::archive::is_pdf(content),
            Self::Png => infer::image::is_png(content),
            Self::Jpeg => infer::image::is_jpeg(content),
        })
    }

    /// The file extension, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Png => "png",
            Self::Jpeg => "jpg",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_is_detected_from_the_content() {
        for (content, media) in [
            (&b"%PDF-1.7\n"[..], Some(MediaType::Pdf)),
            (b"\x89PNG\r\n\x1a\n", Some(MediaType::Png)),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Some(MediaType::Jpeg)),
            (b"<html>%PDF-1.7", None),
            (b"GIF89a", None),
            (b"PK\x03\x04", None),
            (b"%PD", None),
            (b"", None),
        ] {
            assert_eq!(MediaType::of(content), media, "{content:?}");
        }
        for media in MediaType::ALL {
            assert_eq!(media.as_str().parse(), Ok(media));
        }
    }
}
