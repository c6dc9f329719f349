//! Outbound transfers that only the chain knows, because an older copy of the database was restored: their postings, and
//! how far the nonces of their signer are accounted for.
//!
//! A row of `chain_txs` that is final and has no hash says that everything with lower nonces, in blocks up to its own, is
//! in the ledger. Deliberately absent: finding the transfers on the chain.

use payferry_domain::ledger::{Account, PostingKind};
use payferry_domain::{Address, Chain, Timestamp};
use payferry_entities::ChainTxStatus::{Cancelled, Final};
use payferry_entities::{Database, Transaction, chain_txs, ledger_postings, query_all};
use sea_orm::ActiveValue::NotSet;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ConnectionTrait, DbErr, EntityTrait, IntoActiveModel, Statement};

use super::rows::row_number;
use crate::postings::balance_changes;
use crate::writer::take_lines;

/// Prefix of the subject of the posting of an unknown outbound transfer.
pub const UNKNOWN_SENT_PREFIX: &str = "sent_";

/// An outbound transfer of the contract that no operation explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSent {
    /// Chain.
    pub chain: Chain,
    /// 0x hex.
    pub tx_hash: String,
    /// Index of the log in its block.
    pub log_index: i64,
    /// PSP that owned the money.
    pub psp_id: String,
    /// Subject of the payment whose vault it left; `None` for the PSP's vault.
    pub payment: Option<String>,
    /// Token contract.
    pub token_address: Address,
    /// Recipient.
    pub to: Address,
    /// Base units.
    pub amount: i64,
}

impl UnknownSent {
    /// The money has left its vault, so it is on no account of the PSP any more.
    fn posting(&self, now: Timestamp) -> ledger_postings::Model {
        let debit = if self.payment.is_some() { Account::Payment } else { Account::Psp };
        let place = format!("{}_{}_{}", self.chain, self.tx_hash, self.log_index);
        ledger_postings::Model {
            position: 0,
            subject: format!("{UNKNOWN_SENT_PREFIX}{place}"),
            version: 1,
            line: 0,
            psp_id: self.psp_id.clone(),
            kind: PostingKind::UnknownSent.as_str().to_owned(),
            debit: debit.as_str().to_owned(),
            credit: Account::External.as_str().to_owned(),
            chain: self.chain.as_str().to_owned(),
            token_address: self.token_address.to_string(),
            amount: self.amount,
            reference: self.payment.clone().unwrap_or_else(|| self.tx_hash.clone()),
            at: now.as_millis(),
        }
    }

    /// Posts it with its balance, unless it is posted; returns true if it was new.
    pub async fn post(&self, database: &Database, now: Timestamp) -> Result<bool, DbErr> {
        let posting = self.posting(now);
        let transaction = database.begin().await?;
        take_lines(&transaction, [self.psp_id.as_str()]).await?;
        let row = ledger_postings::ActiveModel { position: NotSet, ..posting.clone().into_active_model() };
        let key = [ledger_postings::Column::Subject, ledger_postings::Column::Version, ledger_postings::Column::Line];
        let keep = OnConflict::columns(key).do_nothing().to_owned();
        let insert = ledger_postings::Entity::insert(row).on_conflict(keep);
        if insert.exec_without_returning(&transaction).await? == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        for change in balance_changes([&posting]) {
            let sql = "INSERT INTO balances (psp_id, chain, token_address, available, reserved, updated_at) \
                       VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (psp_id, chain, token_address) DO UPDATE SET \
                       available = balances.available + excluded.available, updated_at = excluded.updated_at";
            let (units, reserved, at) = (change.available.into(), change.reserved.into(), change.updated_at.into());
            let values = [change.psp_id.into(), change.chain.into(), change.token_address.into(), units, reserved, at];
            transaction.execute_raw(Statement::from_sql_and_values(database.backend(), sql, values)).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// Block that is not after the first transaction of this account that the database does not know: a nonce is mined after
/// all lower ones. `None` if no lower one is known to be final.
pub async fn last_known_block(database: &Database, chain: Chain, account: Address) -> Result<Option<u64>, DbErr> {
    let sql = format!(
        "WITH own AS (SELECT nonce, status, tx_hash, block_number FROM chain_txs WHERE chain = $1 AND sender = $2), \
         accounted AS (SELECT COALESCE(MAX(nonce), -1) AS nonce FROM own WHERE status = '{Final}' AND tx_hash IS NULL), \
         missing AS (SELECT nonce FROM own WHERE status = '{Cancelled}' UNION ALL \
         SELECT nonce + 1 FROM own WHERE NOT EXISTS (SELECT 1 FROM chain_txs later WHERE later.chain = $1 \
         AND later.sender = $2 AND later.nonce = own.nonce + 1)) \
         SELECT MAX(block_number) FROM own WHERE status = '{Final}' AND nonce < \
         (SELECT MIN(missing.nonce) FROM missing, accounted WHERE missing.nonce > accounted.nonce)"
    );
    let rows = query_all(database.reader(), &sql, [chain.as_str().into(), account.to_string().into()]).await?;
    let block: Option<i64> = rows.first().map_or(Ok(None), |row| row.try_get_by_index(0))?;
    Ok(block.and_then(|block| u64::try_from(block).ok()))
}

/// Notes that every outbound transfer of this account with a nonce below `next`, in blocks up to `block`, is in the
/// ledger. The next transaction is signed with a nonce from `next` on.
pub async fn account_for(
    transaction: &Transaction,
    (chain, account): (Chain, Address),
    next: u64,
    block: u64,
    now: Timestamp,
) -> Result<(), DbErr> {
    let Some(nonce) = next.checked_sub(1) else { return Ok(()) };
    let row = chain_txs::Model {
        id: 0,
        chain: chain.as_str().to_owned(),
        sender: account.to_string(),
        nonce: row_number(nonce),
        to_address: account.to_string(),
        input: "0x".to_owned(),
        gas_limit: 0,
        status: Final,
        tx_hash: None,
        block_number: Some(row_number(block)),
        block_hash: None,
        created_at: now.as_millis(),
        updated_at: now.as_millis(),
    };
    let row = chain_txs::ActiveModel { id: NotSet, ..row.into_active_model() };
    let key = [chain_txs::Column::Chain, chain_txs::Column::Sender, chain_txs::Column::Nonce];
    let keep = OnConflict::columns(key).do_nothing().to_owned();
    chain_txs::Entity::insert(row).on_conflict(keep).exec_without_returning(transaction).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use payferry_entities::{ChainTxStatus, balances};

    use super::*;
    use crate::chain::attempts::tests::{OLD, tx};
    use crate::writer::tests::Env;

    #[tokio::test]
    async fn transfer_is_posted_once_and_may_make_the_balance_negative() {
        let Env { database, .. } = &Env::new().await;
        let sent = |log_index, payment: Option<&str>| UnknownSent {
            chain: Chain::Base,
            tx_hash: "0xab".to_owned(),
            log_index,
            psp_id: "psp_1".to_owned(),
            payment: payment.map(str::to_owned),
            token_address: Address([1; 20]),
            to: Address([2; 20]),
            amount: 7,
        };
        for (sent, is_new) in [
            (sent(0, None), true),
            (sent(0, None), false),
            (sent(1, None), true),
            (sent(2, Some("pay_1")), true),
            (sent(2, Some("pay_1")), false),
        ] {
            assert_eq!(sent.post(database, Timestamp(5)).await.unwrap(), is_new, "{sent:?}");
        }
        let balances = balances::Entity::find().all(database.reader()).await.unwrap();
        let units: Vec<_> = balances.iter().map(|row| (row.available, row.reserved, row.updated_at)).collect();
        assert_eq!(units, [(-14, 0, 5)], "a payment's own vault is no part of the balance");
        let postings = ledger_postings::Entity::find().all(database.reader()).await.unwrap();
        let mut lines: Vec<_> =
            postings.iter().map(|row| (row.subject.as_str(), row.debit.as_str(), row.reference.as_str())).collect();
        lines.sort_unstable();
        let expected = [
            ("sent_base_0xab_0", "psp", "0xab"),
            ("sent_base_0xab_1", "psp", "0xab"),
            ("sent_base_0xab_2", "payment", "pay_1"),
        ];
        assert_eq!(lines, expected);
    }

    #[tokio::test]
    async fn search_starts_at_the_last_final_transaction_before_the_first_unknown_nonce() {
        let Env { database, .. } = &Env::new().await;
        let account: Address = OLD.parse().unwrap();
        let insert = async |nonce, status: ChainTxStatus| {
            let row = chain_txs::Model { block_number: Some(nonce * 10), ..tx(OLD, nonce, status) };
            let row = chain_txs::Model { tx_hash: Some(format!("0x{nonce}")), ..row };
            let row = chain_txs::ActiveModel { id: NotSet, ..row.into_active_model() };
            chain_txs::Entity::insert(row).exec(database.writer()).await.unwrap();
        };
        let first = async || last_known_block(database, Chain::Base, account).await.unwrap();
        assert_eq!(first().await, None);
        insert(0, ChainTxStatus::Final).await;
        insert(1, ChainTxStatus::Final).await;
        insert(2, ChainTxStatus::Mined).await;
        assert_eq!(first().await, Some(10));
        // The nonces 3 and 4 were used elsewhere; 5 is ours again.
        insert(5, ChainTxStatus::Final).await;
        assert_eq!(first().await, Some(10));
        let account_for = async |next, block| {
            let transaction = database.begin().await.unwrap();
            account_for(&transaction, (Chain::Base, account), next, block, Timestamp(0)).await.unwrap();
            transaction.commit().await.unwrap();
        };
        account_for(8, 77).await;
        assert_eq!(first().await, Some(77));
        insert(8, ChainTxStatus::Final).await;
        insert(9, ChainTxStatus::Cancelled).await;
        insert(10, ChainTxStatus::Final).await;
        assert_eq!(first().await, Some(80));
        // Known as it is.
        account_for(9, 90).await;
        assert_eq!(first().await, Some(80));
    }
}
