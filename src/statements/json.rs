//! A statement as a JSON object.

use std::io::{Error, Write as _};

use serde::Serialize;
use serde_json::json;

use super::{StatementAccount, StatementEntry, Wanted};

/// The end of an account, and of the statement.
pub(super) const END: &[u8] = b"]}";

pub(super) fn head(wanted: &Wanted) -> Result<Vec<u8>, Error> {
    let head = json!({
        "message": "Statement",
        "psp_id": wanted.psp_id,
        "from": wanted.period.from().to_string(),
        "to": wanted.period.to().to_string(),
    });
    opened(Vec::new(), &head, "accounts")
}

pub(super) fn account_begins(account: &StatementAccount, before: usize) -> Result<Vec<u8>, Error> {
    opened(if before > 0 { vec![b','] } else { Vec::new() }, account, "entries")
}

pub(super) fn entries(entries: &[StatementEntry], before: usize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        if before + place > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, entry)?;
    }
    Ok(out)
}

/// Appends an object that continues with a list: without its closing brace.
fn opened(mut out: Vec<u8>, object: &impl Serialize, list: &str) -> Result<Vec<u8>, Error> {
    serde_json::to_writer(&mut out, object)?;
    out.pop();
    write!(out, ",\"{list}\":[")?;
    Ok(out)
}
