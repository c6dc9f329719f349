//! Steps about the chains, time, the PSP's receiver and the service, by the first word of a step.

use std::collections::BTreeMap;
use std::time::Duration;

use payferry_actors::chain::Step as SettlerStep;
use payferry_devchain::{Dropped, Faults};
use payferry_domain::{Amount, Chain, Token};
use payferry_entities::{deliveries, delivery_attempts, events};
use payferry_harness::receiver::ReceiverBehaviour;
use payferry_runtime::observe::ActorKind;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::Value;

use super::outcome::{self, Subject};
use super::people::{PaymentOrder, Refused};
use super::player::Player;
use super::script::Step;
use super::verbs::EXPIRES_IN_SECS;

/// Time between the blocks of `blocks`.
const BLOCK_TIME: Duration = Duration::from_millis(40);

/// Carries out a step about the chains, time or the service.
pub async fn run_step(player: &mut Player, step: &Step) -> Result<(), Refused> {
    let env = &mut player.env;
    let chain = step.chain().unwrap_or(Chain::Base);
    match step.words[0].as_str() {
        "hold" => player.is_held = true,
        "flow" => player.is_held = false,
        "mine" => env.chains[&chain].mine(step.number()?).await,
        "blocks" => {
            for _ in 0..step.number()? {
                env.mine(1).await;
                tokio::time::sleep(BLOCK_TIME).await;
            }
        }
        "sleep" => tokio::time::sleep(Duration::from_millis(step.number()?)).await,
        "advance" => env.advance(step.number()?).await,
        "stand-still" => env.stall_chains(step.number()?).await,
        "read" => env.until_all_read().await,
        "faults" => env.chains[&chain].devchain.set_faults(faults(step)?),
        "receiver" => env.receiver.behave(match step.words[1].as_str() {
            "well" => ReceiverBehaviour::Well,
            "failing" => ReceiverBehaviour::Status(500),
            "hesitant" => ReceiverBehaviour::FailThenAccept(500, usize::try_from(step.number()?).unwrap()),
            other => return Err(format!("unknown behaviour of the receiver: {other}")),
        }),
        "kill" => env.system().inject_crash(actor(&step.words[1])?),
        "die-after" => {
            let known = SettlerStep::ALL.into_iter().find(|known| known.as_str() == step.words[1]);
            env.settler_kill.arm(&[known.ok_or("unknown step of the settler")?]);
        }
        "reorg" => return reorg(player, step).await,
        "panic" => {
            let id = player.payment(step).await?.id();
            player.env.system().inject_panic(id);
        }
        "stop" => env.stop(true).await,
        "crash" => env.stop(false).await,
        "start" => env.start().await,
        "restart" => {
            env.stop(step.has("gently")).await;
            env.start().await;
        }
        "told" => return notified(player, step).await,
        "delivered" => return delivered(player, step).await,
        "balance" => return balance(player, step).await,
        "tried" => return tried(player, step.number()?).await,
        "crowd" => return many_payments(player, step.number()?).await,
        other => return Err(format!("unknown step: {other}")),
    }
    Ok(())
}

/// Reorgs as many blocks as given, or as needed to undo the last transfer or operation.
async fn reorg(player: &Player, step: &Step) -> Result<(), Refused> {
    let (chain, block) = match step.words[1].as_str() {
        "transfer" => {
            let payment = player.payment(step).await?;
            let last = payment.transfers.last().ok_or("no transfer arrived")?;
            (last.key.chain, last.block.number)
        }
        "settlement" | "sending" => {
            let row = player.operation(step.subject.as_deref()).await?;
            let block = row.block_number.ok_or("the operation is in no block")?;
            (row.chain.parse().unwrap(), block.try_into().unwrap())
        }
        _ => {
            let chain = step.chain().unwrap_or(Chain::Base);
            (chain, player.env.chains[&chain].devchain.head().number + 1 - step.number()?)
        }
    };
    let dropped = if step.has("discard") { Dropped::Discard } else { Dropped::Remine };
    player.env.chains[&chain].reorg_from(block, dropped).await;
    Ok(())
}

fn faults(step: &Step) -> Result<Faults, Refused> {
    let rate = |name: &str| step.after(name).map_or(Ok(0.0), |rate| rate.parse::<f64>().map_err(|e| e.to_string()));
    let blocks = |name: &str| step.after(name).map_or(Ok(0), |blocks| blocks.parse::<u64>().map_err(|e| e.to_string()));
    Ok(Faults {
        error_rate: rate("errors")?,
        unavailable_rate: rate("unavailable")?,
        rate_limited_rate: rate("limited")?,
        lost_answer_rate: rate("lost")?,
        empty_logs_rate: rate("empty")?,
        missing_log_rate: rate("missing")?,
        duplicate_log_rate: rate("duplicate")?,
        stale_log_rate: rate("stale")?,
        forged_log_rate: rate("forged")?,
        head_lag_blocks: blocks("lag")?,
        logs_range_blocks_max: blocks("ranges")?,
        ..Faults::default()
    })
}

fn actor(name: &str) -> Result<ActorKind, Refused> {
    Ok(match name {
        "watcher" => ActorKind::Watcher,
        "settler" => ActorKind::Settler,
        "screening" => ActorKind::Screening,
        "shard" => ActorKind::Shard,
        "webhooks" => ActorKind::WebhookSender,
        "sendings" => ActorKind::OutboundSupervisor,
        other => return Err(format!("unknown actor: {other}")),
    })
}

/// Creates many payments concurrently and checks that their wallets differ.
async fn many_payments(player: &Player, count: u64) -> Result<(), Refused> {
    let asked = || {
        let (amount, token, chain) = (Amount::from_tokens(10), Token::Usdc, Some(Chain::Base));
        player.env.initiate(PaymentOrder { amount, token, chain, expires_in_secs: EXPIRES_IN_SECS, payee: None })
    };
    let made = futures::future::try_join_all((0..count).map(|_| asked())).await?;
    let wallets: std::collections::BTreeSet<_> = made.iter().map(|payment| payment.terms.wallet).collect();
    if wallets.len() == made.len() {
        Ok(())
    } else {
        Err(format!("{} payments share {} wallets", made.len(), wallets.len()))
    }
}

/// Id of a step's subject in events.
async fn public_id(player: &Player, step: &Step) -> Result<String, Refused> {
    Ok(match player.subject(step.subject.as_deref())?.1 {
        Subject::Payment(id) => player.env.load(id).await.terms.public_id(),
        Subject::OutboundTransfer(id) => id.to_string(),
    })
}

/// Checks that the receiver has accepted exactly these events, however often each was sent.
async fn delivered(player: &Player, step: &Step) -> Result<(), Refused> {
    player.env.rest().await?;
    let id = public_id(player, step).await?;
    let taken = player.env.receiver.deliveries().into_iter().filter(|delivery| delivery.answered == 200);
    let bodies = taken.map(|delivery| delivery.json()).filter(|body| body["payment_id"] == id.as_str());
    let by_sequence: BTreeMap<i64, String> =
        bodies.map(|body| (body["sequence"].as_i64().unwrap(), body["event"].as_str().unwrap().to_owned())).collect();
    let found: Vec<&str> = by_sequence.values().map(String::as_str).collect();
    if found == step.words[1..] { Ok(()) } else { Err(format!("the receiver accepted {found:?}")) }
}

/// Waits until the PSP's balances are exactly these.
async fn balance(player: &Player, step: &Step) -> Result<(), Refused> {
    let expected = step.words[1..].join(" ");
    let looked = async || match outcome::balances(&player.env).await {
        found if found == expected => Ok(()),
        found => Err(format!("the PSP has {found}")),
    };
    player.env.wait(false, looked).await
}

/// Checks fields of the last event of this name.
async fn notified(player: &Player, step: &Step) -> Result<(), Refused> {
    let id = public_id(player, step).await?;
    let of_it = events::Entity::find().filter(events::Column::PaymentId.eq(id));
    let of_name = of_it.filter(events::Column::Name.eq(&step.words[1])).order_by_desc(events::Column::Sequence);
    let event = of_name.one(player.env.database.reader()).await.unwrap().ok_or("no such event exists")?;
    let body: Value = serde_json::from_str(&event.payload).unwrap();
    for said in &step.words[2..] {
        let (field, expected) = said.split_once('=').ok_or("expected field=value")?;
        if body[field].as_str() != Some(expected) {
            return Err(format!("{field} is not {expected}: {body:#}"));
        }
    }
    Ok(())
}

/// Checks that each event was delivered at its `times`-th attempt, and that the log contains every response code.
async fn tried(player: &Player, times: u64) -> Result<(), Refused> {
    player.env.rest().await?;
    let reader = player.env.database.reader();
    let rows = deliveries::Entity::find().all(reader).await.unwrap();
    let attempts =
        delivery_attempts::Entity::find().order_by_asc(delivery_attempts::Column::Number).all(reader).await.unwrap();
    for row in rows {
        let of_row = attempts.iter().filter(|attempt| attempt.delivery_id == row.id);
        let codes: Vec<Option<i64>> = of_row.map(|attempt| attempt.response_code).collect();
        let mut expected = vec![Some(500); usize::try_from(times).unwrap() - 1];
        expected.push(Some(200));
        if codes != expected || row.response_code != Some(200) {
            return Err(format!("{row:?} has the response codes {codes:?}"));
        }
    }
    Ok(())
}
