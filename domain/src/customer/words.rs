//! The names that the interface gives to a customer's facts.

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
    /// How far verification has come.
    KycStatus, "pending, pending_update, approved, success, rejected" {
        /// Not verified yet.
        Pending = "pending",
        /// A phone number or wallet changed and is being screened.
        PendingUpdate = "pending_update",
        /// Cleared.
        Approved = "approved",
        /// Cleared; the other name that the interface gives it. Read, never written.
        Success = "success",
        /// Not accepted; verification may be started anew.
        Rejected = "rejected",
    }
}

impl KycStatus {
    /// Whether the customer may transact.
    pub const fn is_cleared(self) -> bool {
        matches!(self, Self::Approved | Self::Success)
    }
}

named! {
    /// A document that a customer hands in; each name is also that of its field.
    DocumentKind, "proof_of_residential_address, incorporation_certificate, proof_of_business_address, verification_document" {
        /// Where a person, or a company's primary contact, lives.
        ProofOfResidentialAddress = "proof_of_residential_address",
        /// That a company exists.
        IncorporationCertificate = "incorporation_certificate",
        /// Where a company is.
        ProofOfBusinessAddress = "proof_of_business_address",
        /// A person's id card, passport or licence; the identity provider usually takes it itself.
        VerificationDocument = "verification_document",
    }
}

impl CustomerKind {
    /// What has to be handed in before verification.
    pub const fn required_documents(self) -> &'static [DocumentKind] {
        use DocumentKind::{IncorporationCertificate, ProofOfBusinessAddress, ProofOfResidentialAddress};
        match self {
            Self::Individual => &[ProofOfResidentialAddress],
            Self::Business => &[ProofOfResidentialAddress, IncorporationCertificate, ProofOfBusinessAddress],
        }
    }

    /// Whether a customer of this kind has such a document at all.
    pub fn takes(self, document: DocumentKind) -> bool {
        document == DocumentKind::VerificationDocument || self.required_documents().contains(&document)
    }
}

named! {
    /// What a check is for.
    CheckPurpose, "identity, rescreen" {
        /// Who the customer is, asked by the PSP.
        Identity = "identity",
        /// Whether a change of phone number or wallet changes anything, asked by the service itself.
        Rescreen = "rescreen",
    }
}

named! {
    /// What keeps verification from being started.
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

/// Which documents are there. Serialised as a list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<DocumentKind>", into = "Vec<DocumentKind>")]
pub struct Documents(u8);

impl Documents {
    /// None.
    pub const NONE: Self = Self(0);

    const fn bit(kind: DocumentKind) -> u8 {
        1 << kind as u8
    }

    /// Whether this one is there.
    pub const fn contains(self, kind: DocumentKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, kind: DocumentKind) -> Self {
        Self(self.0 | Self::bit(kind))
    }

    /// All that are in either.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Them, in the order of declaration.
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

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against the customer.
    Approved,
    /// Something does.
    Rejected {
        /// What, as the provider or the operator names it; at least one.
        reasons: Vec<String>,
    },
}
