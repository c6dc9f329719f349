//! Customers of a run: for each payment with the behaviour `customer`, the PSP registers one when the payment is due.
//!
//! Pure. A customer is compared with the request, when it is found by search and at the end of the run.

use std::collections::HashMap;

use serde::Serialize;
use tokio::time::Instant;

use super::record::{InitiationFailure, Record};
use super::stages::{Latencies, LatencyFigures};
use super::state::RunState;
use crate::psp::ListedCustomer;

/// Status of a customer who is verified.
const CLEARED: &str = "approved";
/// Domain of the email addresses.
const AT_DOMAIN: &str = "@example.com";

/// A customer as the load tester knows it.
#[derive(Debug)]
pub struct CustomerRecord {
    /// When the registration was due.
    pub intended: Instant,
    /// Its id, from the answer.
    pub id: Option<String>,
    /// Time of the answer.
    pub registered: Option<Instant>,
    /// Time at which the customer was verified.
    pub cleared: Option<Instant>,
    /// Reason why it was not registered, or not verified.
    pub failed: Option<InitiationFailure>,
}

impl CustomerRecord {
    /// Makes the record of a customer who is now registered.
    pub const fn new(intended: Instant) -> Self {
        Self { intended, id: None, registered: None, cleared: None, failed: None }
    }

    /// Returns true until the customer is verified, or cannot be.
    pub const fn is_open(&self) -> bool {
        self.cleared.is_none() && self.failed.is_none()
    }
}

/// Returns the email address of the customer of a payment.
pub fn email(state: &RunState, number: u32) -> String {
    format!("{}{AT_DOMAIN}", state.reference(number))
}

/// Compares the result of a search for the email address of a customer with it.
pub fn compare_found(id: &str, email: &str, found: &[ListedCustomer]) -> Result<(), String> {
    match found {
        [one] if one.id == id && one.email == email => Ok(()),
        [] => Err(format!("a search for its email address does not find {id}")),
        found => {
            let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
            Err(format!("a search for the email address of {id} finds {}", ids.join(", ")))
        }
    }
}

/// Compares the customers of the run with the list at the end. Returns the differences, in words.
pub fn compare_listed(state: &RunState, listed: &[ListedCustomer]) -> Vec<String> {
    let mut by_number: HashMap<u32, Vec<&ListedCustomer>> = HashMap::new();
    for one in listed {
        if let Some(number) = one.email.strip_suffix(AT_DOMAIN).and_then(|reference| state.number(reference)) {
            by_number.entry(number).or_default().push(one);
        }
    }
    let inner = state.read();
    (0..).zip(&inner.records).flat_map(|(number, record)| differences(number, record, by_number.get(&number))).collect()
}

fn differences(number: u32, record: &Record, listed: Option<&Vec<&ListedCustomer>>) -> Vec<String> {
    let listed = listed.map_or(&[][..], Vec::as_slice);
    let said = |what: String| format!("the customer of payment {number} {what}");
    let Some(customer) = record.customer.as_deref() else {
        return listed.iter().map(|one| said(format!("exists as {} and was not registered", one.id))).collect();
    };
    let mut found: Vec<String> =
        listed.iter().skip(1).map(|one| said(format!("exists a second time, as {}", one.id))).collect();
    if let Some(failed) = &customer.failed {
        found.push(said(format!("is not verified: {}", failed.kind)));
        if !failed.may_be_there && customer.id.is_none() {
            found.extend(listed.first().map(|one| said(format!("exists as {} although it was refused", one.id))));
        }
    }
    match (&customer.id, listed.first()) {
        (Some(id), None) => found.push(said(format!("was registered as {id} and does not exist"))),
        (Some(id), Some(one)) if *id != one.id => found.push(said(format!("is {}, not {id}", one.id))),
        (Some(_), Some(one)) if customer.cleared.is_some() && one.kyc_status != CLEARED => {
            found.push(said(format!("shows kyc_status {}, not {CLEARED}", one.kyc_status)));
        }
        _ => {}
    }
    found
}

crate::names! {
    /// Stages of a customer.
    CustomerStage, "a stage of a customer" {
        /// The service responded with 201.
        Registered = "registered",
        /// The customer has a wallet and documents, has accepted the terms and is verified.
        Verified = "verified",
    }
}

/// Customers in a report.
#[derive(Debug, Clone, Serialize)]
pub struct CustomerFigures {
    /// Number of registrations that were due.
    pub due: u64,
    /// Those that failed: the customer was not registered, or not verified.
    pub failed: u64,
    /// Latencies.
    pub stages: Vec<CustomerStageFigures>,
}

/// One stage of the customers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CustomerStageFigures {
    /// Stage.
    pub stage: CustomerStage,
    /// Latencies from the scheduled start of the payment.
    pub from_intended: LatencyFigures,
    /// Customers that did not reach the stage. Their wait counts as a lower bound.
    pub timed_out: u64,
}

/// Returns the figures of the customers, at the end of the run. `None` if there were none.
pub fn figures<'a>(records: impl Iterator<Item = &'a Record>, now: Instant) -> Option<CustomerFigures> {
    let customers: Vec<&CustomerRecord> = records.filter_map(|record| record.customer.as_deref()).collect();
    let stage = |stage: CustomerStage| {
        let reached = |customer: &&CustomerRecord| match stage {
            CustomerStage::Registered => customer.registered,
            CustomerStage::Verified => customer.cleared,
        };
        let waits = customers.iter().map(|customer| (customer.intended, reached(customer)));
        let (from_intended, timed_out) = Latencies::of_waits(waits, now);
        CustomerStageFigures { stage, from_intended, timed_out }
    };
    let failed = customers.iter().filter(|customer| customer.failed.is_some()).count() as u64;
    (!customers.is_empty()).then(|| CustomerFigures {
        due: customers.len() as u64,
        failed,
        stages: CustomerStage::ALL.map(stage).to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::behaviour::Behaviour;
    use crate::audit::record::tests::record;

    const ID: &str = "cr_1";

    fn listed(id: &str, email: &str, kyc_status: &str) -> ListedCustomer {
        ListedCustomer { id: id.to_owned(), email: email.to_owned(), kyc_status: kyc_status.to_owned() }
    }

    /// Returns the differences of a run with one customer.
    fn compared(change: impl FnOnce(&mut CustomerRecord), listed: &[ListedCustomer]) -> String {
        let (state, _next) = RunState::new("0a1b2c3d", 0, 100);
        let now = Instant::now();
        let mut customer = CustomerRecord {
            id: Some(ID.to_owned()),
            registered: Some(now),
            cleared: Some(now),
            ..CustomerRecord::new(now)
        };
        change(&mut customer);
        let mut record = record(Behaviour::Customer);
        record.customer = Some(Box::new(customer));
        state.read().records.push(record);
        compare_listed(&state, listed).join("; ")
    }

    #[test]
    fn customers_that_differ_from_the_list_are_named() {
        let email = "load-0a1b2c3d-0@example.com";
        let right = listed(ID, email, "approved");
        let refused = InitiationFailure { kind: "register: 503 unavailable".to_owned(), may_be_there: false };
        let refuse = |customer: &mut CustomerRecord| {
            (customer.id, customer.cleared, customer.failed) = (None, None, Some(refused.clone()));
        };
        assert_eq!(compared(|_| {}, std::slice::from_ref(&right)), "");
        assert_eq!(compared(|_| {}, &[right.clone(), listed("cr_2", "ada@example.com", "pending")]), "");
        for (found, says) in [
            (compared(|_| {}, &[]), "was registered as cr_1 and does not exist"),
            (compared(|_| {}, &[right.clone(), right.clone()]), "exists a second time, as cr_1"),
            (compared(|_| {}, &[listed("cr_2", email, "approved")]), "is cr_2, not cr_1"),
            (compared(|_| {}, &[listed(ID, email, "pending")]), "shows kyc_status pending, not approved"),
            (compared(refuse, &[]), "is not verified: register: 503 unavailable"),
            (compared(refuse, std::slice::from_ref(&right)), "exists as cr_1 although it was refused"),
        ] {
            assert!(found.contains(says), "{says}: {found}");
        }
        let other = listed("cr_9", "load-0a1b2c3d-0@example.com", "pending");
        let (state, _next) = RunState::new("0a1b2c3d", 0, 100);
        state.read().records.push(record(Behaviour::Exact));
        assert!(compare_listed(&state, &[other])[0].contains("exists as cr_9 and was not registered"));
    }

    #[test]
    fn a_search_finds_the_customer_and_no_other() {
        let right = listed(ID, "a@example.com", "pending");
        assert_eq!(compare_found(ID, "a@example.com", std::slice::from_ref(&right)), Ok(()));
        for found in [vec![], vec![right.clone(), right.clone()], vec![listed("cr_2", "a@example.com", "pending")]] {
            assert!(compare_found(ID, "a@example.com", &found).unwrap_err().contains(ID));
        }
    }

    #[test]
    fn figures_count_waits_as_lower_bounds() {
        assert!(figures(std::iter::once(&record(Behaviour::Exact)), Instant::now()).is_none());
        let since = Instant::now();
        let mut waiting = record(Behaviour::Customer);
        let registered = Some(since + Duration::from_secs(1));
        waiting.customer = Some(Box::new(CustomerRecord { registered, ..CustomerRecord::new(since) }));
        let CustomerFigures { due, failed, stages } =
            figures(std::iter::once(&waiting), since + Duration::from_secs(9)).unwrap();
        assert_eq!((due, failed), (1, 0));
        let [registered, verified] = stages.as_slice() else { panic!("{stages:?}") };
        assert_eq!((registered.timed_out, verified.timed_out), (0, 1));
        assert!(registered.from_intended.max_ms < 1_010.0 && verified.from_intended.max_ms >= 8_990.0, "{stages:?}");
    }
}
