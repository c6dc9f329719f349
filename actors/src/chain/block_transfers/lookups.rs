//! Wallets that become live or end during a lookup.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Instant;

use super::*;

const WALLET: Address = Address([1; 20]);

/// Looks up `WALLET` in a database with these responses per call; returns the payment and the queries.
async fn looked_up(
    watchlist: &Watchlist,
    answer: impl Fn(usize) -> Vec<(Address, PaymentId)>,
) -> (Option<PaymentId>, Vec<WalletScope>) {
    let asked = RefCell::new(Vec::new());
    let look_up = |unknown_addresses: Vec<Address>, among| {
        assert_eq!(unknown_addresses, [WALLET]);
        asked.borrow_mut().push(among);
        let call = asked.borrow().len();
        std::future::ready(Ok::<_, Infallible>(answer(call)))
    };
    let Ok(owners) = owners_by(watchlist, watchlist.is_whole(), vec![WALLET], look_up).await;
    (owners.get(&WALLET).copied(), asked.into_inner())
}

fn take_out(watchlist: &Watchlist, wallet: Address) {
    watchlist.retire(wallet);
    watchlist.unwatch(&watchlist.retired(Instant::now(), 1), &HashSet::new());
}

fn whole() -> Watchlist {
    let watchlist = Watchlist::default();
    watchlist.set_whole();
    watchlist
}

#[tokio::test]
async fn live_payments_are_queried_in_the_database_until_all_are_watched() {
    let id = PaymentId::generate();
    assert_eq!(looked_up(&Watchlist::default(), |_| vec![(WALLET, id)]).await, (Some(id), vec![WalletScope::All]));
    assert_eq!(looked_up(&whole(), |_| vec![(WALLET, id)]).await, (Some(id), vec![WalletScope::Over]));
    assert_eq!(looked_up(&whole(), |_| Vec::new()).await, (None, vec![WalletScope::Over]));
    let watching = whole();
    watching.watch(WALLET, id);
    assert_eq!(looked_up(&watching, |_| Vec::new()).await, (Some(id), Vec::new()));
}

#[tokio::test]
async fn finds_a_payment_that_becomes_live_during_the_lookup() {
    let (watchlist, id) = (whole(), PaymentId::generate());
    let becomes_live = |_| {
        watchlist.watch(WALLET, id);
        Vec::new()
    };
    assert_eq!(looked_up(&watchlist, becomes_live).await, (Some(id), vec![WalletScope::Over]));
}

#[tokio::test]
async fn finds_a_payment_that_was_live_for_a_moment() {
    let (watchlist, id) = (whole(), PaymentId::generate());
    let is_over_again = |call| {
        if call > 1 {
            return vec![(WALLET, id)];
        }
        watchlist.watch(WALLET, id);
        take_out(&watchlist, WALLET);
        Vec::new()
    };
    assert_eq!(looked_up(&watchlist, is_over_again).await, (Some(id), vec![WalletScope::Over; 2]));
}

#[tokio::test]
async fn continuous_removals_end_in_a_lookup_of_all_payments() {
    let watchlist = whole();
    let others_are_over = |_| {
        take_out(&watchlist, Address([2; 20]));
        Vec::new()
    };
    let (found, asked) = looked_up(&watchlist, others_are_over).await;
    assert_eq!((found, asked.len()), (None, LOOKUP_ROUNDS_MAX as usize));
    assert_eq!(asked.iter().filter(|among| **among == WalletScope::All).count(), 1);
}
