//! Actions of people in a row, by the first word of a step.

use payferry_actors::pauses::Scope;
use payferry_domain::payment::{Command, Decision, Funds, Payment, Requester, TransferStatus};
use payferry_domain::{Address, Amount, Asset, Chain, RefundId, Token, customer, outbound};

use super::outcome::Subject;
use super::people::{PaymentOrder, Refused};
use super::player::Player;
use super::said::StepWords;
use super::script::Step;
use super::steps;
use crate::env::{PAYERS, account, verdict};

/// Default lifetime of a payment or transfer.
pub const EXPIRES_IN_SECS: i64 = 1_200;
/// Default name of a payment.
const UNNAMED: &str = "p";

/// Name of the subject that a step creates, if any.
pub fn made_by(step: &Step) -> Option<&str> {
    let named = |default| Some(step.words.get(1).filter(|word| !is_amount(word)).map_or(default, String::as_str));
    match step.words[0].as_str() {
        "initiate" | "transfer" => named(UNNAMED),
        "payout" => named("payout"),
        "withdraw" => named("withdrawal"),
        _ => None,
    }
}

fn is_amount(word: &str) -> bool {
    word.parse::<Amount>().is_ok()
}

/// Carries out a step.
pub async fn carry_out(player: &mut Player, step: &Step) -> Result<(), Refused> {
    let said = StepWords(&step.words[1..]);
    match step.words[0].as_str() {
        "policy" | "wait" => Ok(()),
        "initiate" | "transfer" => initiate(player, step, &said).await,
        "pay" => pay(player, step, &said).await,
        "cancel" => of_payment(player, step, Command::Cancel).await,
        "accept" => {
            let expected_received = said.after("expected").map(|amount| amount.parse().unwrap());
            of_payment(player, step, Command::Accept { expected_received }).await
        }
        "retry" => of_payment(player, step, Command::RetrySettlement { by: Requester::Psp }).await,
        "refund" => refund(player, step, &said).await,
        "payout" | "withdraw" => send(player, step, &said).await,
        "operator" => operator(player, step, &said).await,
        "customer" => change_customer(player, &said).await,
        "register" => {
            let address = player.address(&step.words[1]);
            player.env.register_wallet(address).await;
            Ok(())
        }
        "pause" | "lift" => {
            let scope: Scope = step.words[1].parse().map_err(|error| format!("{error}"))?;
            player.env.pause(scope, step.words[0] == "pause").await;
            Ok(())
        }
        "kyt" => kyt(player, &said),
        "blacklist" | "unblacklist" => {
            let address = player.address(&step.words[1]);
            player.env.chains[&Chain::Base].blacklist(address, step.words[0] == "blacklist").await;
            Ok(())
        }
        _ => steps::run_step(player, step, &said).await,
    }
}

async fn initiate(player: &mut Player, step: &Step, said: &StepWords<'_>) -> Result<(), Refused> {
    let payee = match said.after("to") {
        Some(name) => {
            player.others.insert(name.to_owned());
            Some(player.customers.get(&player.env, name).await)
        }
        None => None,
    };
    let token = if said.has("usdt") { Token::Usdt } else { Token::Usdc };
    let chain = said.chain().or(Some(Chain::Base)).filter(|_| !said.has("best"));
    let expires_in_secs = said.after("expires").map_or(EXPIRES_IN_SECS, |secs| secs.parse().unwrap());
    let amount = said.amount().ok_or("expected an amount")?;
    let payment = player.env.initiate(PaymentOrder { amount, token, chain, expires_in_secs, payee }).await?;
    let name = made_by(step).unwrap_or(UNNAMED).to_owned();
    player.subjects.push((name, Subject::Payment(payment.id())));
    Ok(())
}

async fn pay(player: &mut Player, step: &Step, said: &StepWords<'_>) -> Result<(), Refused> {
    let payment = player.payment(step).await?;
    let coin = said.coin().unwrap_or_else(|| payment.terms.token.into());
    let chain = &player.env.chains[&said.after("on").map_or(payment.terms.chain, |name| name.parse().unwrap())];
    let amount = said.amount().unwrap_or(payment.terms.amount);
    chain.transfer(said.after("from").unwrap_or(PAYERS[0]), coin, payment.terms.wallet, amount).await;
    if !said.has("unmined") {
        chain.mine(1).await;
    }
    Ok(())
}

async fn of_payment(player: &Player, step: &Step, command: Command) -> Result<(), Refused> {
    let id = player.payment(step).await?.id();
    player.env.command(id, command).await.map(|_| ())
}

async fn refund(player: &mut Player, step: &Step, said: &StepWords<'_>) -> Result<(), Refused> {
    let payment = player.payment(step).await?;
    let to = address_after(player, said, "to");
    let chain = said.after("on").map_or(payment.terms.chain, |name| name.parse().unwrap());
    let coin = said.coin().unwrap_or_else(|| payment.terms.token.into());
    let address = player.env.chains[&chain].coin(coin);
    let asset = Some(Asset { chain, address }).filter(|asset| *asset != payment.asset());
    let funds = if asset.is_some() { Funds::Misdirected } else { Funds::Received };
    let refund_id = RefundId::generate();
    let command = Command::RequestRefund { refund_id, amount: said.amount(), to, funds, asset, by: Requester::Psp };
    of_payment(player, step, command).await
}

fn address_after(player: &mut Player, said: &StepWords<'_>, word: &str) -> Option<Address> {
    said.after(word).map(|name| player.address(name))
}

async fn send(player: &mut Player, step: &Step, said: &StepWords<'_>) -> Result<(), Refused> {
    let amount = said.amount().ok_or("expected an amount")?;
    let chain = said.chain().unwrap_or(Chain::Base);
    let outbound = if step.words[0] == "payout" {
        let name = said.after("to").ok_or("expected a customer")?;
        player.others.insert(name.to_owned());
        let payee = player.customers.get(&player.env, name).await;
        player.env.pay_out(amount, chain, payee).await?
    } else {
        player.env.withdraw(amount, chain).await?
    };
    let name = made_by(step).unwrap_or(UNNAMED).to_owned();
    player.subjects.push((name, Subject::OutboundTransfer(outbound.id())));
    Ok(())
}

/// Carries out an operator's decision: `transfer`, `refund-address` or `sending`, each with `allow` or `block`;
/// `refund-blocked`; `retry`.
async fn operator(player: &mut Player, step: &Step, said: &StepWords<'_>) -> Result<(), Refused> {
    let now = player.env.clock().now();
    let command = match step.words[1].as_str() {
        "transfer" => {
            let payment = player.payment(step).await?;
            let transfer = in_question(&payment).ok_or("no transfer to decide about")?;
            let verdict = verdict(said.decision()?, true, now);
            Command::ScreenTransfer { key: transfer.key, revision: transfer.revision, verdict }
        }
        "refund-address" => {
            let payment = player.payment(step).await?;
            let refund_id = payment.refunds.last().ok_or("no refund exists")?.id;
            Command::ScreenRefund { refund_id, verdict: verdict(said.decision()?, true, now) }
        }
        "refund-blocked" => {
            let to = address_after(player, said, "to");
            let (refund_id, by) = (RefundId::generate(), Requester::Operator);
            Command::RequestRefund { refund_id, amount: said.amount(), to, funds: Funds::Blocked, asset: None, by }
        }
        "retry" => Command::RetrySettlement { by: Requester::Operator },
        "sending" => {
            let outbound = player.the_outbound(step).await?;
            let decided = outbound::Command::Screen(verdict(said.decision()?, true, now));
            return player.env.decide_outbound(outbound.id(), decided).await.map(|_| ());
        }
        "release" => {
            let id = player.payment(step).await?.id();
            return if player.env.system().release(id) { Ok(()) } else { Err("not quarantined".to_owned()) };
        }
        other => return Err(format!("unknown action of the operator: {other}")),
    };
    of_payment(player, step, command).await
}

/// Last transfer without an allowing verdict, or else the last one.
fn in_question(payment: &Payment) -> Option<&payferry_domain::payment::Transfer> {
    let present = |t: &&payferry_domain::payment::Transfer| t.status != TransferStatus::Orphaned;
    let open = |t: &&payferry_domain::payment::Transfer| t.decision() != Some(Decision::Allow);
    payment.transfers.iter().rev().filter(present).find(open).or(payment.transfers.last())
}

async fn change_customer(player: &mut Player, said: &StepWords<'_>) -> Result<(), Refused> {
    let (id, _) = player.customers.get(&player.env, &said.0[0]).await;
    match said.0.get(1).map(String::as_str) {
        Some("deactivate") => player.env.change_customer(id, customer::Command::Deactivate).await,
        other => return Err(format!("unknown action of a customer: {other:?}")),
    }
    Ok(())
}

fn kyt(player: &mut Player, said: &StepWords<'_>) -> Result<(), Refused> {
    match said.0 {
        [word] if word == "away" || word == "back" => player.env.judge.set_away(word == "away"),
        [name, _] => {
            let is_payer = PAYERS.contains(&name.as_str());
            let address = if is_payer { account(name) } else { player.address(name) };
            player.env.judge.say(address, Some(said.decision()?));
        }
        _ => return Err("expected away, back, or a name and a decision".to_owned()),
    }
    Ok(())
}
