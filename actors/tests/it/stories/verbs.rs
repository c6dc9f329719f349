//! Actions of people in a row, by the first word of a step.

use payferry_actors::pauses::Scope;
use payferry_domain::payment::{Command, Decision, Funds, Payment, RefundOrder, Requester, Status, TransferStatus};
use payferry_domain::{Address, Amount, Asset, Chain, RefundId, Token, customer, outbound};

use super::outcome::Subject;
use super::people::{PaymentOrder, Refused, Request};
use super::player::Player;
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
    word.ends_with('%') || word.parse::<Amount>().is_ok()
}

/// Carries out steps; requests of several steps at the same time.
pub async fn carry_out_together(player: &mut Player, steps: &[Step]) -> Vec<Result<(), Refused>> {
    if let [step] = steps {
        return vec![carry_out(player, step).await];
    }
    let mut requests = Vec::new();
    for step in steps {
        if let Ok(Some(request)) = request(player, step).await {
            requests.push(request);
        }
    }
    let made = futures::future::join_all(requests.into_iter().map(|request| player.env.perform(request))).await;
    made.into_iter().map(|made| made.map(|made| player.subjects.extend(made))).collect()
}

/// Carries out a step.
pub async fn carry_out(player: &mut Player, step: &Step) -> Result<(), Refused> {
    if let Some(request) = request(player, step).await? {
        let made = player.env.perform(request).await?;
        player.subjects.extend(made);
        return Ok(());
    }
    match step.words[0].as_str() {
        "policy" | "wait" => Ok(()),
        "initiate" | "transfer" => initiate(player, step).await,
        "pay" => pay(player, step).await,
        "operator" => {
            let id = player.payment(step).await?.id();
            if player.env.release(id).await { Ok(()) } else { Err("not quarantined".to_owned()) }
        }
        "customer" => change_customer(player, step).await,
        "register" => {
            let address = player.address(&step.words[1]).await;
            player.env.register_wallet(address).await;
            Ok(())
        }
        "pause" | "lift" => {
            let scope: Scope = step.words[1].parse().map_err(|error| format!("{error}"))?;
            player.env.pause(scope, step.words[0] == "pause").await;
            Ok(())
        }
        "kyt" => kyt(player, step).await,
        "blacklist" | "unblacklist" => {
            let address = player.address(&step.words[1]).await;
            player.env.blacklist(address, step.words[0] == "blacklist").await;
            Ok(())
        }
        _ => steps::run_step(player, step).await,
    }
}

/// Returns the request of the PSP or the operator that a step makes, if it makes one.
async fn request(player: &mut Player, step: &Step) -> Result<Option<Request>, Refused> {
    let verb = step.words[0].as_str();
    if let "payout" | "withdraw" = verb {
        return send(player, step).await.map(Some);
    }
    if verb == "operator" && step.words[1] == "sending" {
        let id = player.the_outbound(step).await?.id();
        let decided = outbound::Command::Screen(verdict(step.decision()?, true, player.env.clock().now()));
        return Ok(Some(Request::Decide(id, decided)));
    }
    if !["cancel", "accept", "retry", "refund"].contains(&verb) && (verb != "operator" || step.words[1] == "release") {
        return Ok(None);
    }
    let payment = player.payment(step).await?;
    let command = match verb {
        "cancel" => Command::Cancel,
        "accept" => Command::Accept { expected_received: step.after("expected").map(|amount| amount.parse().unwrap()) },
        "retry" => Command::RetrySettlement { by: Requester::Psp },
        "refund" => refund(player, &payment, step).await?,
        _ => operator(player, &payment, step).await?,
    };
    Ok(Some(Request::Command(payment.id(), command)))
}

/// Returns `true` if a payment fits a request.
pub fn fits(step: &Step, payment: &Payment) -> bool {
    match step.words[0].as_str() {
        "cancel" => payment.transfers.is_empty(),
        "accept" => payment.status == Status::Mismatched,
        "refund" if step.has("misdirected") => misdirected(payment).is_some(),
        "refund" => !payment.refundable().is_zero(),
        "operator" if step.has("refund-blocked") => !payment.blocked_held().is_zero(),
        "operator" | "retry" => payment.attention().is_some(),
        _ => true,
    }
}

/// Asset of the first transfer in the wrong coin or on the wrong chain.
fn misdirected(payment: &Payment) -> Option<Asset> {
    payment.transfers.iter().find(|transfer| !transfer.is_right()).map(|transfer| payment.asset_of(transfer))
}

async fn initiate(player: &mut Player, step: &Step) -> Result<(), Refused> {
    let payee = match step.after("to") {
        Some(name) => {
            player.others.insert(name.to_owned());
            Some(player.customers.get(&player.env, name).await)
        }
        None => None,
    };
    let token = if step.has("usdt") { Token::Usdt } else { Token::Usdc };
    let chain = step.chain().or(Some(Chain::Base)).filter(|_| !step.has("best"));
    let expires_in_secs = step.after("expires").map_or(EXPIRES_IN_SECS, |secs| secs.parse().unwrap());
    let amount = step.amount().ok_or("expected an amount")?;
    let payment = player.env.initiate(PaymentOrder { amount, token, chain, expires_in_secs, payee }).await?;
    let name = made_by(step).unwrap_or(UNNAMED).to_owned();
    player.subjects.push((name, Subject::Payment(payment.id())));
    Ok(())
}

async fn pay(player: &mut Player, step: &Step) -> Result<(), Refused> {
    let payment = player.payment(step).await?;
    let coin = step.coin().unwrap_or_else(|| payment.terms.token.into());
    let chain = &player.env.chains[&step.after("on").map_or(payment.terms.chain, |name| name.parse().unwrap())];
    let due = payment.terms.amount;
    let amount = step.amount().or_else(|| step.part(due)).unwrap_or(due);
    chain.transfer(step.after("from").unwrap_or(PAYERS[0]), coin, payment.terms.wallet, amount).await;
    if !step.has("unmined") {
        chain.mine(1).await;
    }
    Ok(())
}

async fn refund(player: &mut Player, payment: &Payment, step: &Step) -> Result<Command, Refused> {
    let to = address_after(player, step, "to").await;
    let asset = if step.has("misdirected") {
        Some(misdirected(payment).ok_or("no misdirected transfer")?)
    } else {
        let chain = step.after("on").map_or(payment.terms.chain, |name| name.parse().unwrap());
        let coin = step.coin().unwrap_or_else(|| payment.terms.token.into());
        let address = player.env.chains[&chain].coin(coin);
        Some(Asset { chain, address }).filter(|asset| *asset != payment.asset())
    };
    let funds = if asset.is_some() { Funds::Misdirected } else { Funds::Received };
    let amount = step.amount().or_else(|| step.part(payment.refundable()));
    let plain = player.env.system().plain_recipient(payment, asset, to).await;
    let plain = plain.map_err(|_| "chain_unavailable".to_owned())?;
    let order =
        RefundOrder { amount, to, funds, asset, plain, ..RefundOrder::new(RefundId::generate(), Requester::Psp) };
    Ok(Command::RequestRefund(Box::new(order)))
}

async fn address_after(player: &mut Player, step: &Step, word: &str) -> Option<Address> {
    Some(player.address(step.after(word)?).await)
}

async fn send(player: &mut Player, step: &Step) -> Result<Request, Refused> {
    let chain = step.chain().unwrap_or(Chain::Base);
    let part = step.part(player.env.balance_of_psp(chain).await);
    let amount = step.amount().or(part).ok_or("expected an amount")?;
    let payee = if step.words[0] == "payout" {
        let name = step.after("to").ok_or("expected a customer")?;
        player.others.insert(name.to_owned());
        Some(player.customers.get(&player.env, name).await)
    } else {
        None
    };
    let name = made_by(step).unwrap_or(UNNAMED).to_owned();
    Ok(Request::Send { name, amount, chain, payee })
}

/// An operator's decision about a payment: `transfer` or `refund-address`, each with `allow` or `block`; `refund` with
/// `approve` or `reject`; `refund-blocked`; `retry`.
async fn operator(player: &mut Player, payment: &Payment, step: &Step) -> Result<Command, Refused> {
    let now = player.env.clock().now();
    Ok(match step.words[1].as_str() {
        "transfer" => {
            let transfer = in_question(payment).ok_or("no transfer to decide about")?;
            let verdict = verdict(step.decision()?, true, now);
            Command::ScreenTransfer { key: transfer.key, verdict }
        }
        "refund-address" => {
            let refund_id = payment.refunds.last().ok_or("no refund exists")?.id;
            Command::ScreenRefund { refund_id, verdict: verdict(step.decision()?, true, now) }
        }
        "refund" => {
            let waiting = payment.refunds.iter().find(|refund| refund.awaits_approval());
            let refund_id = waiting.or(payment.refunds.last()).ok_or("no refund exists")?.id;
            Command::DecideRefund { refund_id, approve: step.has("approve") }
        }
        "refund-blocked" => {
            let (to, amount) = (address_after(player, step, "to").await, step.amount());
            let order = RefundOrder::new(RefundId::generate(), Requester::Operator);
            Command::RequestRefund(Box::new(RefundOrder { amount, to, funds: Funds::Blocked, ..order }))
        }
        "retry" => Command::RetrySettlement { by: Requester::Operator },
        other => return Err(format!("unknown action of the operator: {other}")),
    })
}

/// Last transfer without an allowing verdict, or else the last one.
fn in_question(payment: &Payment) -> Option<&payferry_domain::payment::Transfer> {
    let present = |t: &&payferry_domain::payment::Transfer| t.status != TransferStatus::Orphaned;
    let open = |t: &&payferry_domain::payment::Transfer| t.decision() != Some(Decision::Allow);
    payment.transfers.iter().rev().filter(present).find(open).or(payment.transfers.last())
}

async fn change_customer(player: &mut Player, step: &Step) -> Result<(), Refused> {
    let (id, _) = player.customers.get(&player.env, &step.words[1]).await;
    match step.words.get(2).map(String::as_str) {
        Some("deactivate") => player.env.change_customer(id, customer::Command::Deactivate).await,
        other => return Err(format!("unknown action of a customer: {other:?}")),
    }
    Ok(())
}

async fn kyt(player: &mut Player, step: &Step) -> Result<(), Refused> {
    match step.said() {
        [word] if word == "away" || word == "back" => player.env.judge.set_away(word == "away"),
        [name, _] => {
            let is_payer = PAYERS.contains(&name.as_str());
            let address = if is_payer { account(name) } else { player.address(name).await };
            player.env.judge.say(address, step.decision()?);
        }
        _ => return Err("expected away, back, or a name and a decision".to_owned()),
    }
    Ok(())
}
