//! Choice of the endpoint for each call: configured order, skipped endpoints last.

use std::sync::Arc;

use alloy::primitives::U64;
use alloy::rpc::types::TransactionReceipt;
use futures::future::join_all;
use payferry_domain::Hash32;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{BlockHeader, ChainClient, ClientError};
use super::endpoint::{Answers, Call, Scope};

impl ChainClient {
    /// Sends signed bytes to every endpoint. Succeeds as soon as one accepts or already has the transaction; does not
    /// wait for the others.
    pub async fn broadcast(&self, raw: &str) -> Result<(), ClientError> {
        let mut sends = JoinSet::new();
        for index in 0..self.endpoints.len() {
            let (client, raw) = (self.clone(), raw.to_owned());
            sends.spawn(async move { client.one_on(index, "eth_sendRawTransaction", json!([raw])).await });
        }
        let mut worst: Option<ClientError> = None;
        while let Some(answer) = sends.join_next().await {
            match answer {
                Ok(Ok(_) | Err(ClientError::AlreadyKnown)) => {
                    sends.detach_all();
                    return Ok(());
                }
                // An error about the transaction is more useful than one about an endpoint.
                Ok(Err(error)) if worst.as_ref().is_none_or(ClientError::is_about_the_endpoint) => worst = Some(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Err(worst.unwrap_or(ClientError::UnknownBlock))
    }

    /// Claims of each endpoint, in the configured order, about a block and a transaction: the header, and the receipt if
    /// it has one. An unknown block is an error.
    pub async fn claims(
        &self,
        block: u64,
        tx_hash: Hash32,
    ) -> Vec<Result<(BlockHeader, Option<TransactionReceipt>), ClientError>> {
        let calls: Vec<Call> = vec![
            ("eth_getBlockByNumber", json!([U64::from(block), false])),
            ("eth_getTransactionReceipt", json!([tx_hash])),
        ];
        let claim = |index: usize| {
            let calls = calls.clone();
            async move {
                let mut answers = self.many_on(index, calls).await?.into_iter();
                let mut next = || answers.next().unwrap_or_else(|| Err(missing_answer()));
                let (header, receipt) = (next()?, next()?);
                let header: Option<BlockHeader> = parse(&header)?;
                Ok((header.ok_or(ClientError::UnknownBlock)?, parse(&receipt)?))
            }
        };
        join_all((0..self.endpoints.len()).map(claim)).await
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, ClientError> {
        let mut last_error = no_endpoint();
        for index in self.order() {
            match self.one_on(index, method, params.clone()).await.and_then(|raw| parse(&raw)) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_about_the_endpoint() => last_error = error,
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// Sends calls; each has its own result.
    pub(super) async fn ask_each<T: DeserializeOwned>(
        &self,
        calls: impl IntoIterator<Item = Call>,
    ) -> Result<Answers<T>, ClientError> {
        let answers = self.ask_many(calls.into_iter().collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.and_then(|raw| parse(&raw))).collect())
    }

    async fn ask_many(&self, calls: Vec<Call>) -> Result<Answers, ClientError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut best: Result<Answers, ClientError> = Err(no_endpoint());
        let mut fewest = usize::MAX;
        for index in self.order() {
            match self.many_on(index, calls.clone()).await {
                Ok(answers) => {
                    let away = |answer: &&Result<_, ClientError>| {
                        answer.as_ref().is_err_and(ClientError::is_about_the_endpoint)
                    };
                    let nulls = answers.iter().flat_map(Result::as_ref).filter(is_null_block(&calls)).count();
                    let doubts = answers.iter().filter(away).count() + nulls;
                    if doubts < fewest {
                        (fewest, best) = (doubts, Ok(answers));
                    }
                    if doubts == 0 {
                        break;
                    }
                }
                Err(error) if best.is_ok() => {
                    tracing::trace!(%error, "another endpoint failed; the best responses so far stand");
                }
                Err(error) if !error.is_about_the_endpoint() => return Err(error),
                Err(error) => best = Err(error),
            }
        }
        best
    }

    /// Endpoints in order of preference, skipped ones last. Spawns probes of skipped endpoints that are due; callers do
    /// not wait for them.
    pub(super) fn order(&self) -> Vec<usize> {
        let (aside, ready): (Vec<usize>, Vec<usize>) =
            (0..self.endpoints.len()).partition(|index| self.endpoints[*index].is_aside());
        if !ready.is_empty() {
            for &index in aside.iter().filter(|index| self.endpoints[**index].begin_probe()) {
                let (endpoint, scope) = (Arc::clone(&self.endpoints[index]), self.scope(index));
                tokio::spawn(async move { endpoint.probe(&scope).await });
            }
        }
        ready.into_iter().chain(aside).collect()
    }

    /// The same order, rotated so that the first endpoint comes last.
    pub(super) fn order_elsewhere(&self) -> Vec<usize> {
        let mut order = self.order();
        if !order.is_empty() {
            order.rotate_left(1);
        }
        order
    }

    pub(super) fn scope(&self, index: usize) -> Scope {
        let is_only = self.endpoints.len() == 1;
        Scope { expected: self.expected, index, is_only, timeout: self.timeout, batches: self.batches }
    }

    pub(super) async fn one_on(
        &self,
        index: usize,
        method: &'static str,
        params: Value,
    ) -> Result<Box<RawValue>, ClientError> {
        let answers = self.many_on(index, vec![(method, params)]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(missing_answer()))
    }

    pub(super) async fn many_on(&self, index: usize, calls: Vec<Call>) -> Result<Answers, ClientError> {
        self.endpoints[index].exchange(&self.scope(index), calls).await
    }
}

fn missing_answer() -> ClientError {
    ClientError::Malformed("a response is missing".to_owned())
}

pub(super) fn no_endpoint() -> ClientError {
    ClientError::Unavailable("no endpoint is configured".to_owned())
}

/// Blocks queried by number that the endpoint does not have: it lags, another endpoint may not.
fn is_null_block(calls: &[Call]) -> impl Fn(&&Box<RawValue>) -> bool + use<> {
    let headers = calls.iter().all(|(method, _)| *method == "eth_getBlockByNumber");
    move |raw| headers && raw.get() == "null"
}

pub(super) fn parse<T: DeserializeOwned>(raw: &RawValue) -> Result<T, ClientError> {
    serde_json::from_str(raw.get()).map_err(|error| ClientError::Malformed(error.to_string()))
}
