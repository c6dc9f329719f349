//! Names that the interface uses for the state of a customer.

use serde::{Deserialize, Serialize};

use crate::named::{named, named_set};

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

named_set! {
    /// Set of document kinds. Serialised as a list of names.
    Documents(u8) of DocumentKind, skips_unknown: false
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityVerdict {
    /// Passed.
    Approved,
    /// Failed.
    Rejected {
        /// Reasons from the provider or the operator; at least one.
        reasons: Vec<String>,
    },
}
