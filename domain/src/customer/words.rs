//! Names that the interface uses for the state of a customer.

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// Person or company.
    CustomerKind, "individual, business" {
        /// A person.
        Individual = "individual",
        /// A company, with a person as its primary contact.
        Business = "business",
    }
}

named! {
    /// Verification status.
    KycStatus, "pending, pending_update, approved, success, rejected" {
        /// Not yet verified.
        Pending = "pending",
        /// A changed phone number or wallet is being screened.
        PendingUpdate = "pending_update",
        /// Cleared.
        Approved = "approved",
        /// Cleared. Second name of the interface for `approved`; it is read, but never written.
        Success = "success",
        /// Rejected. Verification can be started again.
        Rejected = "rejected",
    }
}

impl KycStatus {
    /// Returns true if the customer may transact.
    pub const fn is_cleared(self) -> bool {
        matches!(self, Self::Approved | Self::Success)
    }
}

named! {
    /// Kind of a document. The names are also the names of the request fields.
    DocumentKind, "proof_of_residential_address, incorporation_certificate, proof_of_business_address, verification_document" {
        /// Proof of address of a person, or of the primary contact of a company.
        ProofOfResidentialAddress = "proof_of_residential_address",
        /// Proof that a company exists.
        IncorporationCertificate = "incorporation_certificate",
        /// Proof of the address of a company.
        ProofOfBusinessAddress = "proof_of_business_address",
        /// Identity card, passport, or driving licence of a person. The identity provider usually collects it itself.
        VerificationDocument = "verification_document",
    }
}

impl CustomerKind {
    /// Returns the documents that verification requires.
    pub const fn required_documents(self) -> &'static [DocumentKind] {
        use DocumentKind::{IncorporationCertificate, ProofOfBusinessAddress, ProofOfResidentialAddress};
        match self {
            Self::Individual => &[ProofOfResidentialAddress],
            Self::Business => &[ProofOfResidentialAddress, IncorporationCertificate, ProofOfBusinessAddress],
        }
    }

    /// Returns true if a customer of this kind can have such a document.
    pub fn takes(self, document: DocumentKind) -> bool {
        document == DocumentKind::VerificationDocument || self.required_documents().contains(&document)
    }
}

named! {
    /// Purpose of a check.
    CheckPurpose, "identity, rescreen" {
        /// Identity of the customer, requested by the PSP.
        Identity = "identity",
        /// Screening of a changed phone number or wallet, requested by the service.
        Rescreen = "rescreen",
    }
}

named! {
    /// Items that can be missing before verification starts.
    Missing, "terms_of_service, and names of documents" {
        /// The terms are not accepted.
        TermsOfService = "terms_of_service",
        /// See [`DocumentKind`].
        ProofOfResidentialAddress = "proof_of_residential_address",
        /// See [`DocumentKind`].
        IncorporationCertificate = "incorporation_certificate",
        /// See [`DocumentKind`].
        ProofOfBusinessAddress = "proof_of_business_address",
        /// See [`DocumentKind`].
        VerificationDocument = "verification_document",
    }
}

impl From<DocumentKind> for Missing {
    fn from(document: DocumentKind) -> Self {
        match document {
            DocumentKind::ProofOfResidentialAddress => Self::ProofOfResidentialAddress,
            DocumentKind::IncorporationCertificate => Self::IncorporationCertificate,
            DocumentKind::ProofOfBusinessAddress => Self::ProofOfBusinessAddress,
            DocumentKind::VerificationDocument => Self::VerificationDocument,
        }
    }
}

/// Set of document kinds. Serialised as a list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<DocumentKind>", into = "Vec<DocumentKind>")]
pub struct Documents(u8);

impl Documents {
    /// The empty set.
    pub const NONE: Self = Self(0);

    const fn bit(kind: DocumentKind) -> u8 {
        1 << kind as u8
    }

    /// Returns true if the set contains `kind`.
    pub const fn contains(self, kind: DocumentKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// Returns the set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: DocumentKind) -> Self {
        Self(self.0 | Self::bit(kind))
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the kinds in the order of declaration.
    pub fn iter(self) -> impl Iterator<Item = DocumentKind> {
        DocumentKind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<DocumentKind> for Documents {
    fn from_iter<I: IntoIterator<Item = DocumentKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

impl From<Vec<DocumentKind>> for Documents {
    fn from(kinds: Vec<DocumentKind>) -> Self {
        kinds.into_iter().collect()
    }
}

impl From<Documents> for Vec<DocumentKind> {
    fn from(documents: Documents) -> Self {
        documents.iter().collect()
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Passed.
    Approved,
    /// Failed.
    Rejected {
        /// Reasons from the provider or the operator; at least one.
        reasons: Vec<String>,
    },
}
