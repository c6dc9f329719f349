//! Arguments of a step: amounts, coins, chains and numbers at any position.

use payferry_domain::payment::Decision;
use payferry_domain::{Amount, Chain};

use super::people::Refused;
use super::script::Step;
use crate::env::Coin;

impl Step {
    /// Words after the verb.
    pub fn said(&self) -> &[String] {
        &self.words[1..]
    }

    pub fn has(&self, word: &str) -> bool {
        self.said().iter().any(|said| said == word)
    }

    /// Returns the word after another one.
    pub fn after(&self, word: &str) -> Option<&str> {
        let at = self.said().iter().position(|said| said == word)?;
        self.said().get(at + 1).map(String::as_str)
    }

    pub fn amount(&self) -> Option<Amount> {
        // The word after `expires` or `expected` is not the amount.
        let plain = |at: &usize| *at == 0 || !["expires", "expected"].contains(&self.said()[at - 1].as_str());
        (0..self.said().len()).filter(plain).find_map(|at| self.said()[at].parse().ok())
    }

    /// Part of an amount, if a percentage is said.
    pub fn part(&self, of: Amount) -> Option<Amount> {
        let percent: i64 = self.said().iter().find_map(|word| word.strip_suffix('%')?.parse().ok())?;
        Some(Amount((of.units() * percent / 100).max(1)))
    }

    pub fn coin(&self) -> Option<Coin> {
        self.said().iter().find_map(|word| Coin::named(word))
    }

    pub fn chain(&self) -> Option<Chain> {
        self.said().iter().find_map(|word| word.parse().ok())
    }

    pub fn number(&self) -> Result<u64, Refused> {
        self.said().iter().find_map(|word| word.parse().ok()).ok_or_else(|| "expected a number".to_owned())
    }

    pub fn decision(&self) -> Result<Decision, Refused> {
        self.said()
            .iter()
            .find_map(|word| word.parse().ok())
            .ok_or_else(|| "expected allow, review or block".to_owned())
    }
}
