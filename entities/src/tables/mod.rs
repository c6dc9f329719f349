//! SeaORM entities, one file per table.

#![allow(missing_docs, reason = "the derives generate undocumented items")]

/// Completes the entity of a table. It has no relations, because queries write their joins explicitly.
macro_rules! without_relations {
    () => {
        #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
        pub enum Relation {}

        impl ActiveModelBehavior for ActiveModel {}
    };
}
use without_relations;

pub mod acknowledgements;
pub mod alarms;
pub mod api_keys;
pub mod approvals;
pub mod audit_chain;
pub mod audit_log;
pub mod authorizations;
pub mod balances;
pub mod chain_cursors;
pub mod chain_headers;
pub mod chain_outages;
pub mod chain_tx_attempts;
pub mod chain_txs;
pub mod chain_views;
pub mod checkout_logos;
pub mod checks;
pub mod customer_documents;
pub mod customer_events;
pub mod customers;
pub mod deliveries;
pub mod delivery_attempts;
pub mod deposits;
pub mod event_floors;
pub mod events;
pub mod idempotency_keys;
pub mod incidents;
pub mod leases;
pub mod ledger_postings;
pub mod merchants;
pub mod nodes;
pub mod operations;
pub mod operator_sessions;
pub mod operators;
pub mod pauses;
pub mod payment_details;
pub mod payment_transitions;
pub mod payments;
pub mod psps;
pub mod quarantines;
pub mod refund_requests;
pub mod refunds;
pub mod sending_transitions;
pub mod sendings;
pub mod sends_per_day;
pub mod transfers;
pub mod webhook_endpoints;
pub mod withdrawal_wallets;
