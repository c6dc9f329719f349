# Settlement: delays, rejections and crashes.

== The token blocks the treasury, and later allows it
covers: api/settlement-fails
  blacklist treasury
  initiate 10
  pay 10 -> confirmed SETTLEMENT_FAILED
  balance pending 9.90
  unblacklist treasury
  retry -> settled -SETTLEMENT_FAILED
= p: pending, confirmed, confirmed (settlement_failed), settled
= p events: payment.confirmed payin.confirmed payin.settlement_failed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10
= balance: available 9.90

== A failed settlement is retried automatically
covers: api/settlement-fails
  blacklist psp
  initiate 10
  pay 10 -> SETTLEMENT_FAILED
  advance 40 -> failures=2
  unblacklist psp
  advance 3700 -> settled
= p: pending, confirmed, confirmed (settlement_failed), confirmed (settlement_failed), settled
= p events: payment.confirmed payin.confirmed payin.settlement_failed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The operator retries a failed settlement
covers: api/settlement-fails
  blacklist treasury
  initiate 10
  pay 10 -> SETTLEMENT_FAILED
  operator retry -> failures=2
  unblacklist treasury
  operator retry -> settled
= p: pending, confirmed, confirmed (settlement_failed), confirmed (settlement_failed), settled
= p events: payment.confirmed payin.confirmed payin.settlement_failed payin.settlement_failed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A failed settlement is refunded whole instead
covers: api/failed-refunded
  blacklist treasury
  initiate 10
  pay 10 -> SETTLEMENT_FAILED
  refund 4 to ada -> refused refund_must_be_all
  refund to ada -> failed refund=sent
  retry -> refused settlement_not_failed
= p: pending, confirmed, confirmed (settlement_failed), failed (settlement_failed)
= p labels: SETTLEMENT_FAILED
= p refunds: 10.00 to ada sent
= p events: payment.confirmed payin.confirmed payin.settlement_failed payment.failed refund.sent
= p ledger: received 10.00, sent 10.00 from payment
= holds: ada 10.00
= balance: nothing

== A failing settlement does not affect the others of its batch
  pause settlement
  initiate good 10 usdt
  initiate bad 20
  good: pay -> confirmed
  bad: pay -> confirmed
  blacklist psp
  lift settlement
  good: wait -> settled
  bad: wait -> SETTLEMENT_FAILED
  balance pending 19.80, available 9.90 usdt
  unblacklist psp
  bad: retry -> settled
= good: pending, confirmed, settled
= good events: payment.confirmed payin.confirmed payment.settled payin.settled
= good ledger: received 10.00, settled 9.90, fee 0.10
= bad: pending, confirmed, confirmed (settlement_failed), settled
= bad events: payment.confirmed payin.confirmed payin.settlement_failed payment.settled payin.settled
= bad ledger: received 20.00, settled 19.80, fee 0.20
= holds: psp 19.80, psp 9.90 usdt, treasury 0.20, treasury 0.10 usdt
= balance: available 19.80, available 9.90 usdt

== No refund while a settlement is in progress
covers: api/settled
  pause settlement
  initiate 10
  pay 10 -> confirmed
  refund to ada -> refused settlement_in_progress
  retry -> refused settlement_in_progress
  lift settlement
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A transfer between confirmation and settlement is excess
covers: api/excess
  pause settlement
  initiate 10
  pay 10 -> confirmed
  pay 5 -> EXCESS excess=5.00
  lift settlement
  wait -> settled
  refund 5 to ada -> refund=sent
= p: pending, confirmed, confirmed (more_received), settled
= p labels: MULTIPLE EXCESS
= p refunds: 5.00 to ada sent
= p events: payment.confirmed payin.confirmed payment.mismatched payin.mismatched payment.settled payin.settled refund.sent
= p ledger: received 10.00, received 5.00, settled 9.90, fee 0.10, sent 5.00 from payment
= holds: psp 9.90, treasury 0.10, ada 5.00

== The settler dies before its transaction is sent
  die-after stored
  initiate 10
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The settler dies after its transaction is sent
covers: peers/unrecorded-payout
  die-after broadcast
  initiate 10
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The settler dies before it reports the result
  die-after recorded
  initiate 10
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A small amount is final early, a large one at the chain's finality
covers: peers/fixed-confirmations
  policy finalized_from 100
  initiate small 10
  initiate large 100
  hold
  small: pay
  large: pay
  mine 2
  small: wait -> confirmed
  large: wait -> pending transfer=seen
  flow
  large: wait -> settled
  small: wait -> settled
= small: pending, confirmed, settled
= small events: payment.confirmed payin.confirmed payment.settled payin.settled
= small ledger: received 10.00, settled 9.90, fee 0.10
= large: pending, confirmed, settled
= large events: payment.confirmed payin.confirmed payment.settled payin.settled
= large ledger: received 100.00, settled 99.00, fee 1.00
= holds: psp 108.90, treasury 1.10
