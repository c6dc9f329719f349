//! An endpoint that fails a constant share of its answers: the watcher still reads faster than blocks are made.

use payferry_devchain::Faults;
use payferry_domain::payment::Status;

use super::behind;
use crate::env::Env;
use crate::env::senses::metric;

/// Share of the answers that are errors.
const ERROR_RATE: f64 = 0.3;
/// Blocks made while the endpoint is down. More than a range, so that a range in which one error loses everything is
/// never read.
const OUTAGE_BLOCKS: u64 = 120;

/// Tests that the watcher catches up and that payments settle while the only endpoint has these faults.
async fn reads_on(faults: Faults) {
    let env = Env::with(behind(0)).await;
    let devchain = &env.chain().devchain;
    let read = || metric("payferry_chain_blocks_read_total", &["chain=base"]);
    devchain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    let before = (read(), env.view().read_number);
    env.chain().blocks(OUTAGE_BLOCKS).await;
    devchain.set_faults(faults);
    let head = devchain.head().number;
    env.until("the missed blocks are read", async || env.view().read_number >= head).await;
    let counted = u64::try_from(read() - before.0).unwrap();
    assert!(counted >= head - before.1, "{counted} of {} blocks", head - before.1);
    for _ in 0..3 {
        let payment = env.initiate_and_pay(1).await.remove(0);
        env.until_status(payment.id(), Status::Settled).await;
    }
    assert_eq!(metric("payferry_chain_reorgs_total", &[]), 0);
    assert!(metric("payferry_chain_request_errors_total", &["chain=base", "endpoint=0"]) > 0);
}

cases! {
    #[tokio::test(flavor = "multi_thread")]

    failed_calls_do_not_stop_the_watcher => reads_on(Faults { error_rate: ERROR_RATE, ..Faults::default() });
    failed_requests_do_not_stop_the_watcher => reads_on(Faults { unavailable_rate: ERROR_RATE, ..Faults::default() });
    lost_answers_do_not_stop_the_watcher => reads_on(Faults { lost_answer_rate: ERROR_RATE, ..Faults::default() });
}
