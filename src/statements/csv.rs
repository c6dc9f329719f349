//! A statement as CSV (RFC 4180): a row at the beginning and at the end of each account, and one for each entry and
//! each total. Client-provided text is escaped, so that spreadsheets do not run it as a formula.

use std::borrow::Cow;
use std::io::Error;

use csv::{Terminator, Writer, WriterBuilder};

use super::{Period, StatementAccount, StatementEntry};

const COLUMNS: [&str; 13] = [
    "row",
    "chain",
    "currency",
    "token_address",
    "at",
    "position",
    "kind",
    "subject",
    "own_reference",
    "reference",
    "debit",
    "credit",
    "balance",
];
/// Characters that start a formula in spreadsheets.
const FORMULA_BEGINS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Writes rows as text.
fn text(write: impl FnOnce(&mut Writer<Vec<u8>>) -> csv::Result<()>) -> Result<Vec<u8>, Error> {
    let mut table = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    write(&mut table)?;
    table.into_inner().map_err(csv::IntoInnerError::into_error)
}

/// Writes a row; `cells` are those behind the account's own columns.
fn row(
    table: &mut Writer<Vec<u8>>,
    name: &str,
    account: &StatementAccount,
    cells: [&str; COLUMNS.len() - 4],
) -> csv::Result<()> {
    let begin = [name, &account.chain, account.currency.unwrap_or_default(), &account.token_address];
    table.write_record(begin.into_iter().chain(cells))
}

pub(super) fn head() -> Result<Vec<u8>, Error> {
    text(|table| table.write_record(COLUMNS))
}

pub(super) fn account_begins(account: &StatementAccount, period: Period) -> Result<Vec<u8>, Error> {
    let at = period.from().to_string();
    text(|table| row(table, "opening", account, [&at, "", "", "", "", "", "", "", &account.opening_balance]))
}

pub(super) fn entries(account: &StatementAccount, entries: &[StatementEntry]) -> Result<Vec<u8>, Error> {
    let entry = |table: &mut Writer<Vec<u8>>, entry: &StatementEntry| {
        let StatementEntry { at, kind, subject, reference, balance, .. } = entry;
        let (position, own) = (entry.position.to_string(), entry.own_reference.as_deref().unwrap_or_default());
        let (debit, credit) = [&entry.debit, &entry.credit].map(|side| side.as_deref().unwrap_or_default()).into();
        row(table, "entry", account, [at, &position, kind, subject, &harmless(own), reference, debit, credit, balance])
    };
    text(|table| entries.iter().try_for_each(|one| entry(table, one)))
}

pub(super) fn account_ends(account: &StatementAccount, period: Period) -> Result<Vec<u8>, Error> {
    let at = period.to().to_string();
    text(|table| {
        for total in &account.totals {
            row(table, "total", account, ["", "", &total.kind, "", "", "", &total.debit, &total.credit, ""])?;
        }
        row(table, "closing", account, [&at, "", "", "", "", "", "", "", &account.closing_balance])
    })
}

/// Prefixes an apostrophe to a text that would start a formula.
fn harmless(text: &str) -> Cow<'_, str> {
    if text.starts_with(FORMULA_BEGINS) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> StatementAccount {
        StatementAccount {
            chain: "base".to_owned(),
            currency: Some("USDC"),
            token_address: "0xusdc".to_owned(),
            opening_balance: "-1.00".to_owned(),
            closing_balance: "8.90".to_owned(),
            closing_reserved: "0.00".to_owned(),
            totals: Vec::new(),
        }
    }

    fn entry(own_reference: &str) -> StatementEntry {
        StatementEntry {
            position: 7,
            at: "2026-11-22T00:00:00.000Z".to_owned(),
            kind: "settled".to_owned(),
            subject: "pay_1".to_owned(),
            own_reference: Some(own_reference.to_owned()),
            reference: "0xhash".to_owned(),
            debit: None,
            credit: Some("9.90".to_owned()),
            balance: "8.90".to_owned(),
        }
    }

    #[test]
    fn fields_survive_a_round_trip_and_are_not_formulas() {
        let own = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a,b", "he said \"no\"", "two\nlines", "ü", "'"];
        let out = [head().unwrap(), entries(&account(), &own.map(entry)).unwrap()].concat();
        assert!(out.starts_with(b"row,chain,currency") && out.ends_with(b"\r\n"));
        let mut read = csv::Reader::from_reader(out.as_slice());
        let told: Vec<String> = read.records().map(|record| record.unwrap()[8].to_owned()).collect();
        assert_eq!(
            told,
            ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "a,b", "he said \"no\"", "two\nlines", "ü", "'"]
        );
        assert!(told.iter().all(|text| !text.starts_with(FORMULA_BEGINS)));
    }
}
