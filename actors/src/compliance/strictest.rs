//! Combination of several KYT providers: all are asked concurrently, and the strictest decision counts.

use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use payferry_domain::payment::{Decision, Verdict};

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict::both_plain;

/// KYT provider with the strictest decision of several. An error of one provider is an error of all, unless another one
/// blocks: a block is final whatever the others answer, and does not wait for them.
pub struct Strictest {
    name: String,
    first: Arc<dyn KytScreener>,
    others: Vec<Arc<dyn KytScreener>>,
}

impl Strictest {
    /// Combines `first` and `others`. Of equal decisions, the earlier provider's counts.
    pub fn new(first: Arc<dyn KytScreener>, others: Vec<Arc<dyn KytScreener>>) -> Self {
        let mut name = first.name().to_owned();
        for other in &others {
            name.push('+');
            name.push_str(other.name());
        }
        Self { name, first, others }
    }
}

#[async_trait::async_trait]
impl KytScreener for Strictest {
    fn name(&self) -> &str {
        &self.name
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let screeners = std::iter::once(&self.first).chain(&self.others);
        let mut answers: FuturesUnordered<_> = screeners
            .enumerate()
            .map(|(place, screener)| async move { (place, screener.name(), screener.screen(request).await) })
            .collect();
        let (mut verdicts, mut errors) = (Vec::new(), Vec::new());
        let mut blocked = false;
        // After a block, only answers that are ready now are included.
        while let Some((place, name, answer)) =
            if blocked { answers.next().now_or_never().flatten() } else { answers.next().await }
        {
            match answer {
                Ok(verdict) => {
                    blocked |= verdict.decision == Decision::Block;
                    verdicts.push((place, verdict));
                }
                Err(error) => errors.push((place, format!("{name}: {error}"))),
            }
        }
        if blocked || errors.is_empty() {
            return merge(verdicts);
        }
        errors.sort();
        let errors: Vec<String> = errors.into_iter().map(|(_, error)| error).collect();
        Err(KytError(errors.join("; ")))
    }
}

/// Returns the strictest verdict, with the flags of all and the combined kind of the sender.
fn merge(mut verdicts: Vec<(usize, Verdict)>) -> Result<Verdict, KytError> {
    verdicts.sort_by_key(|(place, verdict)| (std::cmp::Reverse(verdict.decision), *place));
    let mut verdicts = verdicts.into_iter().map(|(_, verdict)| verdict);
    let mut decided = verdicts.next().ok_or_else(|| KytError("no provider was asked".to_owned()))?;
    for other in verdicts {
        for flag in other.flags {
            if !decided.flags.contains(&flag) {
                decided.flags.push(flag);
            }
        }
        decided.plain_sender = both_plain(decided.plain_sender, other.plain_sender);
    }
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use payferry_domain::Timestamp;
    use tokio::sync::Barrier;

    use super::*;
    use crate::compliance::tests::{Stub, request, says};
    use crate::compliance::verdict::bare;

    #[derive(Clone, Copy)]
    enum Answer {
        Says(Decision, &'static [&'static str]),
        Fails,
        Hangs,
    }

    impl Answer {
        async fn of(self, provider: &str) -> Result<Verdict, KytError> {
            match self {
                Self::Says(decision, flags) => {
                    let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
                    Ok(Verdict { flags, ..says(provider, decision) })
                }
                Self::Fails => Err(KytError("away".to_owned())),
                Self::Hangs => std::future::pending().await,
            }
        }
    }

    async fn ask(answers: &[(&'static str, Answer)]) -> Result<Verdict, KytError> {
        let mut screeners: Vec<Arc<dyn KytScreener>> = Vec::new();
        for &(name, answer) in answers {
            screeners.push(Arc::new(Stub(name, move || answer.of(name))));
        }
        let first = screeners.remove(0);
        let asked = Strictest::new(first, screeners);
        tokio::time::timeout(Duration::from_mins(1), asked.screen(&request())).await.unwrap()
    }

    const ALLOWS: Answer = Answer::Says(Decision::Allow, &[]);
    const REVIEWS: Answer = Answer::Says(Decision::Review, &["mixer"]);
    const BLOCKS: Answer = Answer::Says(Decision::Block, &["sanctions", "mixer"]);

    #[tokio::test]
    async fn strictest_decision_counts_and_names_its_provider() {
        for (answers, decision, provider) in [
            ([("a", ALLOWS), ("b", ALLOWS)], Decision::Allow, "a"),
            ([("a", ALLOWS), ("b", REVIEWS)], Decision::Review, "b"),
            ([("a", REVIEWS), ("b", BLOCKS)], Decision::Block, "b"),
            ([("a", BLOCKS), ("b", ALLOWS)], Decision::Block, "a"),
        ] {
            let verdict = ask(&answers).await.unwrap();
            assert_eq!((verdict.decision, verdict.provider.as_str()), (decision, provider));
        }
        let both = ask(&[("a", REVIEWS), ("b", Answer::Says(Decision::Review, &["mixer", "scam"]))]).await.unwrap();
        assert_eq!((both.provider.as_str(), both.flags), ("a", vec!["mixer".to_owned(), "scam".to_owned()]));
        let blocked = ask(&[("a", BLOCKS), ("b", Answer::Says(Decision::Block, &["scam"]))]).await.unwrap();
        assert_eq!((blocked.provider.as_str(), blocked.flags.len()), ("a", 3));
        let only = ask(&[("a", REVIEWS)]).await.unwrap();
        assert_eq!(only.decision, Decision::Review);
    }

    #[tokio::test]
    async fn one_error_is_an_error_unless_another_provider_blocks() {
        let error = ask(&[("a", ALLOWS), ("b", Answer::Fails), ("c", REVIEWS)]).await.unwrap_err();
        assert_eq!(error.to_string(), "b: away");
        let error = ask(&[("a", Answer::Fails), ("b", Answer::Fails)]).await.unwrap_err();
        assert_eq!(error.to_string(), "a: away; b: away");
        let blocked = ask(&[("a", Answer::Fails), ("b", BLOCKS)]).await.unwrap();
        assert_eq!((blocked.decision, blocked.provider.as_str()), (Decision::Block, "b"));
    }

    #[tokio::test]
    async fn block_does_not_wait_for_other_answers() {
        let blocked = ask(&[("a", Answer::Hangs), ("b", BLOCKS)]).await.unwrap();
        assert_eq!(blocked.decision, Decision::Block);
    }

    #[tokio::test]
    async fn all_providers_are_asked_concurrently() {
        let barrier = Arc::new(Barrier::new(2));
        // Answers only when both providers are asked.
        let together = || {
            let barrier = barrier.clone();
            let answer = move || {
                let barrier = barrier.clone();
                async move {
                    barrier.wait().await;
                    Ok(says("together", Decision::Allow))
                }
            };
            Arc::new(Stub("together", answer))
        };
        let asked = Strictest::new(together(), vec![together()]);
        assert_eq!(asked.name(), "together+together");
        let request = request();
        let verdict = tokio::time::timeout(Duration::from_mins(1), asked.screen(&request)).await;
        assert_eq!(verdict.unwrap().unwrap().decision, Decision::Allow);
    }

    #[test]
    fn sender_is_plain_only_if_no_provider_disagrees() {
        let says = |plain_sender| (0, Verdict { plain_sender, ..bare("a", Decision::Allow, Timestamp(7)) });
        let plain = |one, another| merge(vec![says(one), says(another)]).unwrap().plain_sender;
        assert_eq!(plain(None, Some(true)), Some(true));
        assert_eq!(plain(Some(true), Some(false)), Some(false));
        assert_eq!(plain(None, None), None);
    }
}
