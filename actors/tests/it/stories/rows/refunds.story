# The PSP's decisions about received money.

== An underpayment is accepted if the expected amount matches
covers: api/accepted
  initiate 10
  pay 4 -> mismatched UNDERPAID
  accept expected 5 -> refused received_moved
  accept expected 4 -> settled
= p: pending, mismatched (underpaid), confirmed (accepted), settled
= p labels: UNDERPAID
= p events: payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 4.00, settled 3.96, fee 0.04
= holds: psp 3.96, treasury 0.04

== An overpayment is accepted
covers: api/accepted
  initiate 10
  pay 15 -> mismatched OVERPAID
  accept -> settled
= p: pending, mismatched (overpaid), confirmed (accepted), settled
= p labels: OVERPAID
= p events: payment.mismatched payin.mismatched payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 15.00, settled 14.85, fee 0.15
= holds: psp 14.85, treasury 0.15

== The whole amount is refunded, and nothing is left to settle
covers: api/refunded
  initiate 10
  pay 4 -> mismatched
  refund to ada -> refund=sent
  told refund.sent status=mismatched amount_received=4.00
  accept -> refused nothing_to_accept
  refund to ada -> refused nothing_to_refund
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: ada 4.00

== A refund counts as sent only when it is final
  initiate 10
  pay 4 -> mismatched
  hold
  refund to ada -> unmined refund=pending
  mine 1
  wait -> operation=mined refund=pending
  mine 1
  wait -> refund=sent
  flow
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: ada 4.00

== Only the excess of an overpayment is refunded, and the rest accepted
covers: peers/excess-refund
  initiate 10
  pay 15 -> mismatched OVERPAID
  refund 5 to ada -> refund=sent
  accept -> settled
= p: pending, mismatched (overpaid), confirmed (accepted), settled
= p labels: OVERPAID
= p refunds: 5.00 to ada sent
= p events: payment.mismatched payin.mismatched refund.sent
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 15.00, sent 5.00 from payment, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10, ada 5.00

== The excess is refunded to its sender automatically
covers: api/over peers/excess-refund
  policy overpayment refund_excess
  policy refund_to_sender yes
  pause settlement
  initiate 10
  pay 12 -> confirmed refund=sent
  lift settlement
  wait -> settled
= p: pending, confirmed (overpaid), settled
= p labels: OVERPAID
= p refunds: 2.00 to unlisted sent
= p events: payment.mismatched payin.mismatched payment.confirmed payin.confirmed refund.sent
    payment.settled payin.settled
= p ledger: received 12.00, sent 2.00 from payment, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== With several senders the excess stays refundable
  policy overpayment refund_excess
  policy refund_to_sender yes
  initiate 10
  pay 4 -> mismatched UNDERPAID
  pay 8 from other -> settled
  refund -> refused refund_address_required
  refund to ada -> refund=sent
= p: pending, mismatched (underpaid), confirmed (overpaid), settled
= p labels: OVERPAID MULTIPLE
= p refunds: 2.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched payment.mismatched payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled refund.sent
= p ledger: received 4.00, received 8.00, settled 9.90, fee 0.10, sent 2.00 from payment
= holds: psp 9.90, treasury 0.10, ada 2.00

== Partial refunds after the settlement, from the PSP's vault
covers: peers/excess-refund
  initiate 10
  pay 10 -> settled
  refund 3 to ada -> refund=sent
  pause sending
  refund 4 to ada -> address=allow
  balance available 2.90, reserved 4.00
  lift sending
  wait -> refund=sent
  refund 4 to ada -> refused refund_too_large
= p: pending, confirmed, settled
= p refunds: 3.00 to ada sent, 4.00 to ada sent
= p events: payment.confirmed payin.confirmed payment.settled payin.settled refund.sent refund.sent
= p ledger: received 10.00, settled 9.90, fee 0.10,
    reserved 3.00, sent 3.00 from in_flight, reserved 4.00, sent 4.00 from in_flight
= holds: psp 2.90, treasury 0.10, ada 7.00
= balance: available 2.90

== A refund above the PSP's balance is refused
  initiate 10
  pay 10 -> settled
  refund to ada -> refused insufficient_balance
  refund 9.9 to ada -> refund=sent
= p: pending, confirmed, settled
= p refunds: 9.90 to ada sent
= p events: payment.confirmed payin.confirmed payment.settled payin.settled refund.sent
= p ledger: received 10.00, settled 9.90, fee 0.10, reserved 9.90, sent 9.90 from in_flight
= holds: treasury 0.10, ada 9.90

== A refund rejected by the token fails, and its amount can be refunded again
  initiate 10
  pay 4 -> mismatched
  blacklist crook
  refund to crook -> refund=failed
  refund to ada -> refund=sent
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to crook failed, 4.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.failed refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: ada 4.00

== A refund from the PSP's vault rejected by the token is returned to the balance
  initiate 10
  pay 10 -> settled
  blacklist crook
  refund 5 to crook -> refund=failed
= p: pending, confirmed, settled
= p refunds: 5.00 to crook failed
= p events: payment.confirmed payin.confirmed payment.settled payin.settled refund.failed
= p ledger: received 10.00, settled 9.90, fee 0.10, reserved 5.00, returned 5.00
= holds: psp 9.90, treasury 0.10
= balance: available 9.90

== A late transfer is refunded to its sender
covers: peers/late-lost
  policy refund_to_sender yes
  initiate 10 expires 600
  advance 700 -> failed
  pay 10 -> mismatched LATE
  refund -> refund=sent
= p: pending, failed (expired), mismatched (late)
= p labels: LATE
= p refunds: 10.00 to unlisted sent
= p events: payment.failed payin.failed payment.mismatched payin.mismatched refund.sent
= p ledger: received 10.00, sent 10.00 from payment
= holds: nothing

== After a refund a further transfer does not complete the payment
covers: api/completed
  initiate 10
  pay 4 -> mismatched UNDERPAID
  refund 1 to ada -> refund=sent
  pay 7 -> received=11.00
= p: pending, mismatched (underpaid), mismatched (more_received)
= p labels: MULTIPLE
= p refunds: 1.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent payment.mismatched payin.mismatched
= p ledger: received 4.00, sent 1.00 from payment, received 7.00
= holds: p 10.00, ada 1.00

== A pending payment cannot be refunded
  initiate 10
  refund to ada -> refused payment_pending
  accept -> refused payment_not_mismatched
= p: pending
= holds: nothing

== Refunds above the daily limit wait for the operator, through a crash
  policy refund_elsewhere_daily_max 6
  initiate 10
  pay 10 -> settled
  refund 5 to ada -> refund=sent
  refund 2 to eve -> REFUND_APPROVAL refund=pending_approval address=allow
  balance available 2.90, reserved 2.00
  crash
  start
  wait -> REFUND_APPROVAL refund=pending_approval
  balance available 2.90, reserved 2.00
  operator refund approve -> refund=sent -REFUND_APPROVAL
  operator refund approve -> refused not_awaiting_approval
  refund 1.5 to bob -> refund=pending_approval
  operator refund reject -> refund=failed
  balance available 2.90
  refund 1 to bob -> refund=sent
= p: pending, confirmed, settled
= p refunds: 5.00 to ada sent, 2.00 to eve sent, 1.50 to bob failed, 1.00 to bob sent
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
    refund.sent refund.sent refund.failed refund.sent
= p ledger: received 10.00, settled 9.90, fee 0.10, reserved 5.00, sent 5.00 from in_flight,
    reserved 2.00, sent 2.00 from in_flight, reserved 1.50, returned 1.50, reserved 1.00, sent 1.00 from in_flight
= holds: psp 1.90, treasury 0.10, ada 5.00, bob 1.00, eve 2.00
= balance: available 1.90

== A single refund above the limit per transaction waits for the operator
  policy send_max 3
  initiate 10
  pay 4 -> mismatched
  refund to ada -> refund=pending_approval
  operator refund approve -> refund=sent
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: ada 4.00

== A refund to the only sender has no limit
  policy refund_to_sender yes
  policy refund_elsewhere_daily_max 1
  policy send_max 1
  initiate 10
  pay 4 -> mismatched
  refund -> refund=sent
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to unlisted sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: nothing

== A failed settlement is refunded whole, with approval above the daily limit
  policy refund_elsewhere_daily_max 6
  blacklist treasury
  initiate 10
  pay 10 -> SETTLEMENT_FAILED
  refund to eve -> confirmed refund=pending_approval
  operator refund reject -> SETTLEMENT_FAILED refund=failed
  refund to eve -> confirmed refund=pending_approval
  operator refund approve -> failed refund=sent
= p: pending, confirmed, confirmed (settlement_failed), failed (settlement_failed)
= p labels: SETTLEMENT_FAILED
= p refunds: 10.00 to eve failed, 10.00 to eve sent
= p events: payment.confirmed payin.confirmed payin.settlement_failed refund.failed payment.failed refund.sent
= p ledger: received 10.00, sent 10.00 from payment
= holds: eve 10.00
