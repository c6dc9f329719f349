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

fn writer(out: &mut Vec<u8>) -> Writer<&mut Vec<u8>> {
    WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out)
}

pub(super) fn head(out: &mut Vec<u8>) -> Result<(), Error> {
    let mut table = writer(out);
    table.write_record(COLUMNS)?;
    table.flush()
}

pub(super) fn account_begins(out: &mut Vec<u8>, account: &StatementAccount, period: Period) -> Result<(), Error> {
    let mut table = writer(out);
    end(&mut table, "opening", account, &period.from().to_string(), &account.opening_balance)?;
    table.flush()
}

pub(super) fn entries(out: &mut Vec<u8>, account: &StatementAccount, entries: &[StatementEntry]) -> Result<(), Error> {
    let mut table = writer(out);
    for entry in entries {
        let position = entry.position.to_string();
        table.write_record([
            "entry",
            &account.chain,
            account.currency.unwrap_or_default(),
            &account.token_address,
            &entry.at,
            &position,
            &entry.kind,
            &entry.subject,
            &harmless(entry.own_reference.as_deref().unwrap_or_default()),
            &entry.reference,
            entry.debit.as_deref().unwrap_or_default(),
            entry.credit.as_deref().unwrap_or_default(),
            &entry.balance,
        ])?;
    }
    table.flush()
}

pub(super) fn account_ends(out: &mut Vec<u8>, account: &StatementAccount, period: Period) -> Result<(), Error> {
    let mut table = writer(out);
    for total in &account.totals {
        let (chain, currency, address) = (&account.chain, account.currency.unwrap_or_default(), &account.token_address);
        let (debit, credit) = (&total.debit, &total.credit);
        table.write_record(["total", chain, currency, address, "", "", &total.kind, "", "", "", debit, credit, ""])?;
    }
    end(&mut table, "closing", account, &period.to().to_string(), &account.closing_balance)?;
    table.flush()
}

fn end(
    table: &mut Writer<&mut Vec<u8>>,
    row: &str,
    account: &StatementAccount,
    at: &str,
    balance: &str,
) -> Result<(), Error> {
    let (chain, currency, address) = (&account.chain, account.currency.unwrap_or_default(), &account.token_address);
    Ok(table.write_record([row, chain, currency, address, at, "", "", "", "", "", "", "", balance])?)
}

/// Prefixes an apostrophe to a text that would start a formula.
fn harmless(text: &str) -> Cow<'_, str> {
    if text.starts_with(FORMULA_BEGINS) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        let mut out = Vec::new();
        head(&mut out).unwrap();
        let entries: Vec<_> = own.map(entry).into();
        super::entries(&mut out, &account(), &entries).unwrap();
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
