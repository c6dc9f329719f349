//! A statement as a JSON object.

use std::io::{Error, Write as _};

use serde_json::json;

use super::{StatementAccount, StatementEntry, Wanted};

pub(super) fn head(out: &mut Vec<u8>, wanted: &Wanted) -> Result<(), Error> {
    let head = json!({
        "message": "Statement",
        "psp_id": wanted.psp_id,
        "from": wanted.period.from().to_string(),
        "to": wanted.period.to().to_string(),
    });
    serde_json::to_writer(&mut *out, &head)?;
    reopen(out);
    write!(out, ",\"accounts\":[")
}

pub(super) fn account_begins(out: &mut Vec<u8>, account: &StatementAccount, before: usize) -> Result<(), Error> {
    if before > 0 {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, account)?;
    reopen(out);
    write!(out, ",\"entries\":[")
}

pub(super) fn entries(out: &mut Vec<u8>, entries: &[StatementEntry], before: usize) -> Result<(), Error> {
    for (place, entry) in entries.iter().enumerate() {
        if before + place > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, entry)?;
    }
    Ok(())
}

pub(super) fn account_ends(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

pub(super) fn tail(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// Removes the closing brace of the object, so that it can be continued.
fn reopen(out: &mut Vec<u8>) {
    if out.last() == Some(&b'}') {
        out.pop();
    }
}
