//! Histogram buckets, applied by the metrics exporter.

/// From an immediate receive to a hanging actor, seconds.
const MAILBOX: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// From a commit on an SSD to a locked database, seconds.
const COMMIT: &[f64] =
    &[0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From a sandbox to a payer who takes a day, seconds.
const TRANSITION: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0,
    21_600.0, 86_400.0,
];
/// From a single write to a full group.
const GROUP_UNITS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// From the usual one or two blocks to far more than usual.
const REORG_BLOCKS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 64.0, 128.0, 256.0];

/// Upper bounds of the buckets by histogram, where the default buckets (network requests in seconds) do not fit.
pub const BUCKETS: &[(&str, &[f64])] = &[
    (super::MAILBOX_WAIT, MAILBOX),
    (super::HANDLING, MAILBOX),
    (super::metrics::TRANSITION.name, TRANSITION),
    (payferry_journal::COMMIT_SECONDS, COMMIT),
    (payferry_journal::GROUP_UNITS, GROUP_UNITS),
    (crate::chain::metrics::REORG_DEPTH.name, REORG_BLOCKS),
];
