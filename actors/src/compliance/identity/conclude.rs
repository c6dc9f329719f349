//! Conclusion of a check: one commit applies a provider's verdict to the customer, from a callback or a query.

use payferry_domain::CustomerId;
use payferry_domain::customer::Command;
use payferry_entities::checks;
use payferry_journal::audit::Actor;
use payferry_journal::customers::CustomerChangeError;
use sea_orm::EntityTrait;

use super::provider::CallbackFact;
use super::work::CheckContext;
use crate::customers::CustomerChange;

/// Effect of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictEffect {
    /// The customer changed.
    Changed,
    /// No effect: the verdict was known, or its check no longer counts.
    Known,
}

impl CheckContext {
    /// Applies a fact from a callback. A fact about a check that does not exist, belongs to another provider or is
    /// finished changes nothing, however often it arrives.
    pub(super) async fn apply_callback(
        &self,
        provider: &str,
        fact: &CallbackFact,
    ) -> Result<VerdictEffect, CustomerChangeError> {
        let row = checks::Entity::find_by_id(fact.check.to_string()).one(self.database.reader()).await?;
        let Some(row) = row else {
            tracing::info!(check.id = %fact.check, provider, "callback for an unknown check {}", fact.check);
            return Ok(VerdictEffect::Known);
        };
        // A check that was started but not recorded before a crash has no reference yet; its id is sufficient proof.
        let is_its = |column: &Option<String>, named: &str| column.as_deref().is_none_or(|known| known == named);
        if !is_its(&row.provider, provider) || !is_its(&row.provider_ref, &fact.provider_ref) {
            tracing::warn!(check.id = %fact.check, provider, "a callback about check {} names another session", fact.check);
            return Ok(VerdictEffect::Known);
        }
        let Ok(customer) = row.customer_id.parse() else { return Err(CustomerChangeError::NotFound) };
        let (check, verdict) = (fact.check, fact.verdict.clone());
        self.conclude(customer, Command::ConcludeCheck { check, verdict }, provider).await
    }

    /// Applies a command about a check to its customer.
    pub(super) async fn conclude(
        &self,
        customer: CustomerId,
        command: Command,
        provider: &str,
    ) -> Result<VerdictEffect, CustomerChangeError> {
        let mut opened = CustomerChange::open(&self.registry, &self.database, customer, None).await?;
        let events = opened.apply(&command, &Actor::Provider(provider.to_owned()), self.clock.now()).await?;
        if events.is_empty() {
            return Ok(VerdictEffect::Known);
        }
        let status = opened.customer().kyc_status;
        opened.commit().await?;
        tracing::info!(customer.id = %customer, provider, kyc_status = status.as_str(), "customer {customer} is {status}");
        Ok(VerdictEffect::Changed)
    }
}
