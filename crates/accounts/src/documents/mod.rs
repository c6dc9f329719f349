//! Customers' documents: encrypted objects in a folder or in an S3-compatible bucket.
//!
//! Owned here: the accepted media types, and the storage, encryption and removal of objects (`store`). Deliberately absent: the rows, which `payferry_journal::customers` writes, and the
//! routes.
//!
//! An object is written before its row, so that no row names a missing object. The service chooses the object's name;
//! the sender's file name is not stored.

mod store;

use std::str::FromStr;

pub use store::{AT_ONCE_MAX, Bucket, DocumentError, DocumentLocation, DocumentStore, ORPHAN_AGE, sweep, sweep_on};

/// Maximum size of a document in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 5 * 1024 * 1024;

/// An accepted media type, detected from the content. File names and declared types are not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// PDF.
    Pdf,
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
}

/// A media type that is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a media type of documents")]
pub struct UnknownMediaType;

impl MediaType {
    /// Every accepted media type.
    pub const ALL: [Self; 3] = [Self::Pdf, Self::Png, Self::Jpeg];

    /// Detects the media type from the first bytes; `None` if it is not accepted.
    pub fn of(content: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|media| match media {
            Self::Pdf => infer::archive::is_pdf(content),
            Self::Png => infer::image::is_png(content),
            Self::Jpeg => infer::image::is_jpeg(content),
        })
    }

    /// The value of `Content-Type`.
    pub const fn essence(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
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

impl FromStr for MediaType {
    type Err = UnknownMediaType;

    fn from_str(text: &str) -> Result<Self, UnknownMediaType> {
        Self::ALL.into_iter().find(|media| media.essence() == text).ok_or(UnknownMediaType)
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
            assert_eq!(media.essence().parse(), Ok(media));
        }
    }
}
