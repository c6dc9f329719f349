//! The sandbox's clock: advances the service and the chains together; the offset survives restarts.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use futures::future::try_join_all;
use payferry_runtime::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::chain::SandboxChain;
use super::folder::{read_json, write_json};

/// Maximum distance between the blocks of an advance, so that the chain never counts as down.
const SPACING_SECS: u64 = 15;
/// Longest advance in one step.
pub const ADVANCE_SECS_MAX: u64 = 31 * 24 * 3600;

/// The clock and the file of its offset.
#[derive(Debug)]
pub struct SandboxClock {
    clock: Clock,
    file: PathBuf,
    /// Serialises advances.
    turn: Mutex<()>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    offset_secs: u64,
}

impl SandboxClock {
    /// Reads the offset from `file` and advances chains that are behind it, for example after a stop during an advance.
    pub async fn open(file: PathBuf, chains: impl Iterator<Item = &Arc<SandboxChain>>) -> anyhow::Result<Self> {
        let Stored { offset_secs } = read_json(&file)?.unwrap_or_default();
        bring_up_to(offset_secs, chains).await?;
        let offset_ms = i64::try_from(offset_secs).ok().and_then(|secs| secs.checked_mul(1_000));
        let offset_ms = offset_ms.with_context(|| format!("{} is damaged", file.display()))?;
        Ok(Self { clock: Clock::with_offset_ms(offset_ms), file, turn: Mutex::default() })
    }

    /// The service's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Advances the service and the chains by `secs`, at most [`ADVANCE_SECS_MAX`]. Returns the new offset in seconds.
    ///
    /// The order is: store the offset, advance the chains, advance the service. The service therefore never sees a
    /// chain that appears stalled.
    pub async fn advance(&self, secs: u64, chains: impl Iterator<Item = &Arc<SandboxChain>>) -> anyhow::Result<u64> {
        let _turn = self.turn.lock().await;
        let secs = secs.min(ADVANCE_SECS_MAX);
        let before = u64::try_from(self.clock.offset_ms() / 1_000).unwrap_or(0);
        let offset_secs = before.saturating_add(secs);
        write_json(&self.file, &Stored { offset_secs })?;
        bring_up_to(offset_secs, chains).await?;
        self.clock.advance_secs(i64::try_from(secs)?);
        Ok(offset_secs)
    }
}

async fn bring_up_to(offset_secs: u64, chains: impl Iterator<Item = &Arc<SandboxChain>>) -> anyhow::Result<()> {
    try_join_all(chains.map(|chain| async move {
        let devchain = chain.devchain();
        let behind = i64::try_from(offset_secs)?.saturating_sub(devchain.time_offset_secs());
        if behind > 0 {
            devchain.advance_time(behind.unsigned_abs(), SPACING_SECS).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}
