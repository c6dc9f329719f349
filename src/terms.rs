//! The terms of service that customers accept.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Maximum size of the text in bytes.
pub const TERMS_BYTES_MAX: usize = 256 * 1024;
/// Default text, used until the operator configures one.
const USUAL: &str = include_str!("terms.txt");

/// Reason why a file cannot be used as the terms.
#[derive(Debug, thiserror::Error)]
pub enum TermsError {
    /// It cannot be read, or is not text.
    #[error("{0}")]
    Unreadable(std::io::Error),
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is too large.
    #[error("it has more than {TERMS_BYTES_MAX} bytes")]
    TooLong,
}

/// A plain text: the first line is its title, empty lines separate its paragraphs. Clones share the same text.
#[derive(Debug, Clone)]
pub struct ConsentTerms {
    text: Arc<str>,
    digest: Arc<str>,
}

impl ConsentTerms {
    /// Parses the terms.
    pub fn new(text: &str) -> Result<Self, TermsError> {
        let text = text.trim();
        match text.len() {
            0 => Err(TermsError::Empty),
            1..=TERMS_BYTES_MAX => Ok(Self { digest: hex::encode(Sha256::digest(text)).into(), text: text.into() }),
            _ => Err(TermsError::TooLong),
        }
    }

    /// Reads the terms from a file.
    pub fn read(file: &Path) -> Result<Self, TermsError> {
        Self::new(&std::fs::read_to_string(file).map_err(TermsError::Unreadable)?)
    }

    /// The title.
    pub fn title(&self) -> &str {
        self.text.lines().next().unwrap_or_default().trim()
    }

    /// The paragraphs under the title.
    pub fn paragraphs(&self) -> impl Iterator<Item = &str> {
        let (_, rest) = self.text.split_once('\n').unwrap_or_default();
        rest.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty())
    }

    /// SHA-256 of the text in hex, which identifies the accepted version.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl Default for ConsentTerms {
    fn default() -> Self {
        Self::new(USUAL).expect("the default terms are valid")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_have_a_title_and_paragraphs() {
        let terms = ConsentTerms::new("\nTerms of A\n\nOne\nline.\n\n\nTwo.\n").unwrap();
        assert_eq!(terms.title(), "Terms of A");
        assert_eq!(terms.paragraphs().collect::<Vec<_>>(), ["One\nline.", "Two."]);
        assert_ne!(terms.digest(), ConsentTerms::default().digest());
        assert!(ConsentTerms::default().paragraphs().count() > 3);
        assert!(matches!(ConsentTerms::new(" \n "), Err(TermsError::Empty)));
        assert!(matches!(ConsentTerms::new(&"x".repeat(TERMS_BYTES_MAX + 1)), Err(TermsError::TooLong)));
    }
}
