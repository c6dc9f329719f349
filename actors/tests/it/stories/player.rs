//! Player of a row: carries out each step in turn, waits for rest, and compares the outcome with the row.

use std::collections::BTreeSet;

use payferry_domain::Chain;
use payferry_domain::outbound::OutboundTransfer;
use payferry_domain::payment::{Payment, Status, TransferStatus};
use payferry_entities::operations;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};

use super::env::Env;
use super::given::{chains_of, policies_of};
use super::outcome::{self, Subject};
use super::people::{Customers, Refused};
use super::script::{Row, Step};
use super::truths;
use super::verbs;
use crate::env::account;

/// Prints the outcome of each row for comparison with the interface; rows without an outcome still fail.
const PRINT: &str = "PAYFERRY_STORIES_PRINT";

/// Marks a line whose comma-separated items have no defined order.
const ANY_ORDER: &str = " in any order: ";

/// Player of one row.
pub struct Player {
    pub env: Env,
    /// Subjects of the story, in order.
    pub subjects: Vec<(String, Subject)>,
    /// Accounts whose balances are part of the outcome.
    pub others: BTreeSet<String>,
    pub customers: Customers,
    /// `true` if waiting does not mine.
    pub is_held: bool,
}

/// Plays a row from start to end.
pub async fn play(row: &Row) -> Result<(), String> {
    let env = Env::new(&chains_of(row), &policies_of(row)).await;
    let mut player = Player::new(env);
    for step in &row.steps {
        let notified = step.words.join(" ");
        player.step(step).await.map_err(|wrong| format!("line {}: {notified}: {wrong}", step.line))?;
    }
    player.env.rest().await.map_err(|busy| format!("the story never became idle: {busy}"))?;
    let mut found = outcome::lines(&player.env, &player.subjects, &player.others).await;
    if row.expected.iter().any(|line| line.starts_with(outcome::BALANCE)) {
        found.push(format!("{}{}", outcome::BALANCE, outcome::balances(&player.env).await));
    }
    if std::env::var_os(PRINT).is_some() {
        println!("{} {}\n= {}\n", row.place, row.title, found.join("\n= "));
    }
    let mut wrong = difference(&row.expected, &found);
    wrong.extend(truths::check(&player.env).await);
    player.env.stop(true).await;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Expected lines that are missing, and unexpected lines.
fn difference(expected: &[String], found: &[String]) -> Vec<String> {
    let is = |expected: &str, found: &str| match expected.split_once(ANY_ORDER) {
        Some((what, items)) => {
            found.strip_prefix(&format!("{what}: ")).is_some_and(|others| sorted(items) == sorted(others))
        }
        None => expected == found,
    };
    let missing = expected.iter().filter(|line| !found.iter().any(|other| is(line, other)));
    let more = found.iter().filter(|line| !expected.iter().any(|other| is(other, line)));
    missing.map(|line| format!("- {line}")).chain(more.map(|line| format!("+ {line}"))).collect()
}

fn sorted(items: &str) -> Vec<&str> {
    let mut items: Vec<&str> = items.split(", ").collect();
    items.sort_unstable();
    items
}

impl Player {
    pub fn new(env: Env) -> Self {
        let (subjects, others, customers) = (Vec::new(), BTreeSet::new(), Customers::default());
        Self { env, subjects, others, customers, is_held: false }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let done = verbs::carry_out(self, step).await;
        if let [word, code] = step.then.as_slice()
            && word == "refused"
        {
            return match done {
                Err(refused) if refused == *code => Ok(()),
                other => Err(format!("should have been refused as {code}: {other:?}")),
            };
        }
        done?;
        if step.then.is_empty() { Ok(()) } else { self.until(step).await }
    }

    /// Waits until every condition after the arrow holds.
    async fn until(&self, step: &Step) -> Result<(), String> {
        let (name, subject) = self.subject(step.subject.as_deref().or_else(|| verbs::made_by(step)))?;
        let of_the_chain = |word: &&String| word.starts_with("operation=") || *word == "unmined";
        let conditions = || step.then.iter().filter(|word| !of_the_chain(word));
        let looked = async || {
            if let Some(status) = step.then.iter().find_map(|word| word.strip_prefix("operation=")) {
                let row = self.operation(step.subject.as_deref().or_else(|| verbs::made_by(step))).await?;
                if row.status.as_str() != status {
                    return Err(format!("the operation never became {status}: {row:?}"));
                }
            }
            if step.then.iter().any(|word| word == "unmined") && !self.env.chains[&Chain::Base].has_unmined().await {
                return Err("no transaction of the service is waiting".to_owned());
            }
            let (missing, now) = match subject {
                Subject::Payment(id) => {
                    let payment = self.env.load(id).await;
                    let missing = conditions().find(|word| !holds(&payment, word)).cloned();
                    (missing, short(&payment))
                }
                Subject::OutboundTransfer(id) => {
                    let outbound = self.env.load_outbound(id).await;
                    let missing = conditions().find(|word| !holds_of(&outbound, word)).cloned();
                    (missing, format!("{} {:?}", outbound.status, outbound.failure))
                }
            };
            match missing {
                Some(missing) => Err(format!("{name} never became {missing}: {now}")),
                None => Ok(()),
            }
        };
        self.env.wait(!self.is_held, looked).await
    }

    /// Returns the subject of this name, or the first one.
    pub fn subject(&self, name: Option<&str>) -> Result<(&str, Subject), String> {
        let found = match name {
            Some(name) => self.subjects.iter().find(|(known, _)| known == name),
            None => self.subjects.first(),
        };
        let (name, subject) = found.ok_or_else(|| format!("no subject is named {}", name.unwrap_or("anything")))?;
        Ok((name, *subject))
    }

    /// Returns the payment that a step is about. A subject such as `#7` is the seventh payment (modulo their number) of
    /// those that fit the step, or of all if none fits.
    pub async fn payment(&self, step: &Step) -> Result<Payment, Refused> {
        if let Some(number) = step.subject.as_deref().and_then(|name| name.strip_prefix('#')?.parse::<usize>().ok()) {
            let mut all = Vec::new();
            for (_, subject) in &self.subjects {
                if let Subject::Payment(id) = subject {
                    all.push(self.env.load(*id).await);
                }
            }
            if all.iter().any(|payment| verbs::fits(step, payment)) {
                all.retain(|payment| verbs::fits(step, payment));
            }
            let count = all.len().max(1);
            return all.into_iter().nth(number % count).ok_or_else(|| "no payment exists yet".to_owned());
        }
        match self.subject(step.subject.as_deref())? {
            (_, Subject::Payment(id)) => Ok(self.env.load(id).await),
            (name, Subject::OutboundTransfer(_)) => Err(format!("{name} is not a payment")),
        }
    }

    pub async fn the_outbound(&self, step: &Step) -> Result<OutboundTransfer, Refused> {
        match self.subject(step.subject.as_deref())? {
            (_, Subject::OutboundTransfer(id)) => Ok(self.env.load_outbound(id).await),
            (name, Subject::Payment(_)) => Err(format!("{name} is a payment")),
        }
    }

    /// Returns the last operation of the subject of this name, or of the first one.
    pub async fn operation(&self, name: Option<&str>) -> Result<operations::Model, String> {
        let id = match self.subject(name)?.1 {
            Subject::Payment(id) => id.to_string(),
            Subject::OutboundTransfer(id) => id.to_string(),
        };
        let of_it = operations::Entity::find().filter(operations::Column::PaymentId.eq(id));
        let last = of_it.order_by_desc(operations::Column::CreatedAt).one(self.env.database.reader()).await.unwrap();
        last.ok_or_else(|| "there is no operation".to_owned())
    }

    /// Returns the address of this name: a payment's vault, the PSP's vault, the treasury, or an account, which then
    /// becomes part of the outcome.
    pub async fn address(&mut self, name: &str) -> payferry_domain::Address {
        let of_payment = self.subjects.iter().find_map(|(known, subject)| match subject {
            Subject::Payment(id) if known == name => Some(*id),
            _ => None,
        });
        match (name, of_payment) {
            (_, Some(id)) => self.env.load(id).await.terms.wallet,
            ("psp", _) => self.env.psp_vault(),
            ("treasury", _) => self.env.chains.values().next().unwrap().spec.treasury,
            _ => {
                self.others.insert(name.to_owned());
                account(name)
            }
        }
    }
}

/// Returns `true` if one condition after the arrow holds for a payment.
fn holds(payment: &Payment, word: &str) -> bool {
    if let Some(unwanted) = word.strip_prefix('-') {
        return !holds(payment, unwanted);
    }
    let last = payment.transfers.last();
    if let Some((what, expected)) = word.split_once('=') {
        let refund = payment.refunds.last();
        let found = match what {
            "received" => payment.amount_received().to_string(),
            "excess" => payment.excess_received().to_string(),
            "due" => payment.amount_due().to_string(),
            "refund" => refund.map_or_else(String::new, |refund| refund.public_status().to_owned()),
            "address" => refund
                .and_then(payferry_domain::payment::Refund::decision)
                .map_or_else(String::new, |said| said.to_string()),
            "verdict" => last
                .and_then(payferry_domain::payment::Transfer::decision)
                .map_or_else(String::new, |said| said.to_string()),
            "transfer" => last.map_or_else(String::new, |last| last.status.to_string()),
            "transfers" => payment.transfers.len().to_string(),
            "final" => payment.transfers.iter().filter(|t| t.status == TransferStatus::Final).count().to_string(),
            "failures" => payment.settlement.as_deref().map_or(0, |settlement| settlement.failures).to_string(),
            "settlement" => payment.settlement.as_deref().map_or_else(String::new, |s| s.state.to_string()),
            "shows" => payment.public_status().to_owned(),
            _ => return false,
        };
        return found == expected;
    }
    match word {
        "moved" => payment.expires_at > payment.first_expires_at,
        "passed" => payment.deadline_passed(),
        "paid" => matches!(payment.status, Status::Confirmed | Status::Settled),
        _ if word.chars().any(char::is_lowercase) => payment.status.as_str() == word,
        _ => payment.labels.iter().any(|known| known.as_str() == word),
    }
}

fn holds_of(outbound: &OutboundTransfer, word: &str) -> bool {
    if word == "review" { outbound.is_in_review() } else { outbound.status.as_str() == word }
}

/// The part of a payment that explains an unexpected state.
fn short(payment: &Payment) -> String {
    let transfers: Vec<String> = payment
        .transfers
        .iter()
        .map(|t| format!("{} {} {:?} counted {}", t.amount, t.status, t.decision(), t.counted))
        .collect();
    let refunds: Vec<String> =
        payment.refunds.iter().map(|r| format!("{} {} {:?}", r.amount, r.public_status(), r.failure)).collect();
    let settlement = payment.settlement.as_deref().map(|s| format!("{} {:?}", s.state, s.failure));
    let (status, labels) = (payment.status, payment.labels);
    format!("{status} {labels:?}, transfers {transfers:?}, refunds {refunds:?}, settlement {settlement:?}")
}
