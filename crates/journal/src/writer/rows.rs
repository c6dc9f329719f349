//! Rows that are not complete table rows, as parameters of statements. Field names are column names.

use sea_orm::Value;

use super::bind::{Column, Row};

/// Declares rows: the fields are the columns, in their order.
macro_rules! rows {
    ($($name:ident { $($column:ident: $type:ty,)+ })+) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name<'a> {
            $(pub(super) $column: $type,)+
        }

        impl<'a> Row for $name<'a> {
            fn columns() -> Vec<Column> {
                vec![$(Column::of::<$type>(stringify!($column))),+]
            }

            fn bind(&self, values: &mut Vec<Value>) {
                values.extend([$(self.$column.into()),+]);
            }
        }
    )+};
}

rows! {
    PaymentAdvance {
        id: &'a str,
        version: i64,
        status: &'a str,
        live: bool,
        attention: Option<&'a str>,
        labels: Option<&'a str>,
        amount_received: i64,
        expires_at: i64,
        updated_at: i64,
        state: &'a str,
    }

    LeaseRow {
        name: &'a str,
        owner: &'a str,
        epoch: i64,
        changed_at: i64,
    }

    VersionRow {
        id: &'a str,
        version: i64,
    }

    CursorAdvance {
        chain: &'a str,
        hash_before: &'a str,
        block_number: i64,
        block_hash: &'a str,
        block_time: i64,
        second_look_from: i64,
        epoch: i64,
        updated_at: i64,
    }

    ReserveRow {
        psp_id: &'a str,
        chain: &'a str,
        token_address: &'a str,
        amount: i64,
    }

    CustomerEventRow {
        customer_id: &'a str,
        sequence: i64,
    }

    DayRow {
        psp_id: &'a str,
        token: &'a str,
        day: i64,
        amount: i64,
        amount_max: i64,
    }

    SubmittedOperation {
        id: &'a str,
        revision: i64,
        chain_tx_id: i64,
        updated_at: i64,
    }

    ChainTxRow {
        id: i64,
        status: &'a str,
        tx_hash: Option<&'a str>,
        block_number: Option<i64>,
        block_hash: Option<&'a str>,
        updated_at: i64,
    }

    NewDelivery {
        id: &'a str,
        event_id: &'a str,
        endpoint_id: Option<&'a str>,
    }

    OperationRow {
        id: &'a str,
        updated_at: i64,
    }

    EndedAlarm {
        payment_id: &'a str,
        kind: &'a str,
        ended_at: i64,
    }

    SuccessRow {
        id: &'a str,
        updated_at: i64,
        revision: i64,
    }

    OperationOutcomeRow {
        id: &'a str,
        status: &'a str,
        chain_tx_id: Option<i64>,
        tx_hash: Option<&'a str>,
        block_number: Option<i64>,
        log_index: Option<i64>,
        amount: Option<i64>,
        psp_amount: Option<i64>,
        treasury_fee: Option<i64>,
        failure: Option<&'a str>,
        not_before: i64,
        updated_at: i64,
    }

    RefusedRow {
        id: &'a str,
        revision: i64,
        failure: &'a str,
        updated_at: i64,
    }

    DeliveryRow {
        id: &'a str,
        status: &'a str,
        url: &'a str,
        attempt_count: i64,
        retries_left: i64,
        next_attempt_at: Option<i64>,
        response_code: Option<i64>,
        response_body: Option<&'a str>,
        duration_ms: i64,
        error: Option<&'a str>,
        updated_at: i64,
    }

    BlockRow {
        chain: &'a str,
        hash: &'a str,
    }

    MinedRow {
        chain: &'a str,
        tx_hash: &'a str,
        block_hash: &'a str,
    }

    HeightRow {
        chain: &'a str,
        number: i64,
    }

    OutagesToForget {
        chain: &'a str,
        above: i64,
        ended_before: i64,
    }

    AppliedRow {
        chain: &'a str,
        block_hash: &'a str,
        tx_hash: &'a str,
        log_index: i64,
        applied_revision: i64,
        applied_version: i64,
    }
}
