//! Operations that move a payment's money out, with their transactions.

use maud::{Markup, html};
use payferry_domain::{Amount, Timestamp};

use crate::page::words::{Tone, badge, clock, count, plain, short};
use crate::payment::Operation;

pub(crate) fn panel(operations: &[Operation], now: Timestamp) -> Markup {
    html! {
        @if !operations.is_empty() {
            section.panel aria-labelledby="operations" {
                header { h2 #operations { "On-chain operations" } }
                table {
                    thead {
                        tr {
                            th scope="col" { "Operation" }
                            th.n scope="col" { "Amount" }
                            th scope="col" { "State" }
                            th scope="col" { "Transaction" }
                            th.n.wide scope="col" { "Block" }
                        }
                    }
                    tbody { @for operation in operations { (row(operation, now)) } }
                }
            }
        }
    }
}

fn row(operation: &Operation, now: Timestamp) -> Markup {
    let Operation { row, transaction } = operation;
    let tone = match row.status.as_str() {
        "succeeded" => Tone::Good,
        "failed" => Tone::Bad,
        _ => Tone::Idle,
    };
    let hash = row.tx_hash.as_deref().or_else(|| {
        let signed = transaction.as_ref().and_then(|transaction| transaction.attempts.last());
        signed.map(|attempt| attempt.tx_hash.as_str())
    });
    html! {
        tr id=(row.id) {
            th scope="row" { (plain(&row.kind)) br; small { (clock(Timestamp(row.created_at), now)) } }
            td.n { (Amount(row.amount)) }
            td {
                (badge(&row.status, tone))
                @if row.attempts > 1 { br; small { (count(row.attempts)) " times" } }
            }
            td {
                @match hash { Some(hash) => (short(hash)), None => "–" }
                @if let Some(transaction) = transaction {
                    br; small { "nonce " (transaction.row.nonce) @if transaction.attempts.len() > 1 { ", signed " (count(transaction.attempts.len())) " times" } }
                }
            }
            td.n.wide { @match row.block_number { Some(number) => (count(number)), None => "–" } }
        }
        @if let Some(failure) = &row.failure {
            tr.more id={ (row.id) "-failure" } { td colspan="5" { span.bad-ink.reason { (failure) } } }
        }
    }
}
