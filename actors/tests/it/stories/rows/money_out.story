# Payouts and withdrawals.

== A payout reaches the customer
  initiate 10
  pay 10 -> settled
  payout 4 to ada -> sent
  payout: told payout.pending status=pending amount=4.00
  payout: told payout.sent status=sent amount=4.00 token=USDC chain=base
  payout: delivered payout.pending payout.sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00
= balance: available 5.90

== A payout rejected by the token is returned to the balance
  initiate 10
  pay 10 -> settled
  blacklist crook
  payout 4 to crook -> failed
  balance available 9.90
  payout again 9.9 to ada -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, failed (send_failed)
= payout events: payout.pending payout.failed
= payout ledger: reserved 4.00, returned 4.00
= again: payout pending, sent
= again events: payout.pending payout.sent
= again ledger: reserved 9.90, sent 9.90 from in_flight
= holds: treasury 0.10, ada 9.90
= balance: nothing

== A payout to a blocked wallet is never signed
  initiate 10
  pay 10 -> settled
  kyt crook block
  payout 4 to crook -> failed
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, failed (address_blocked)
= payout events: payout.pending payout.failed
= payout ledger: reserved 4.00, returned 4.00
= holds: psp 9.90, treasury 0.10
= balance: available 9.90

== A payout waits for the operator's decision about its wallet
  initiate 10
  pay 10 -> settled
  kyt ada review
  payout 4 to ada -> review
  balance available 5.90, reserved 4.00
  payout: operator sending allow
  payout: wait -> sent
  payout: operator sending block -> refused not_in_review
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00
= balance: available 5.90

== A payout waits while the screening provider is down
  initiate 10
  pay 10 -> settled
  kyt away
  payout 4 to ada -> review
  balance available 5.90, reserved 4.00
  kyt back
  payout: wait -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00
= balance: available 5.90

== A payout on a paused chain waits, and is sent after the pause
  initiate 10
  pay 10 -> settled
  pause chain:base
  payout 4 to ada -> pending
  mine 5
  read
  payout: wait -> pending
  balance available 5.90, reserved 4.00
  lift chain:base
  payout: wait -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00
= balance: available 5.90

== A withdrawal counts as sent only when it is final
  initiate 10
  pay 10 -> settled
  register purse
  hold
  withdraw 4 -> unmined pending
  mine 1
  withdrawal: wait -> operation=mined pending
  balance available 5.90, reserved 4.00
  mine 1
  withdrawal: wait -> sent
  balance available 5.90
  flow
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= withdrawal: withdrawal pending, sent
= withdrawal events: withdraw.sent
= withdrawal ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, purse 4.00
= balance: available 5.90

== A customer deactivated in the meantime is not paid
  initiate 10
  pay 10 -> settled
  pause sending
  payout 4 to ada -> pending
  balance available 5.90, reserved 4.00
  customer ada deactivate
  lift sending
  payout: wait -> failed
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, failed (customer_not_cleared)
= payout events: payout.pending payout.failed
= payout ledger: reserved 4.00, returned 4.00
= holds: psp 9.90, treasury 0.10
= balance: available 9.90

== A payout is sent, and its settler dies before recording it
covers: peers/unrecorded-payout
  initiate 10
  pay 10 -> settled
  die-after broadcast
  payout 4 to ada -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00

== A payout is mined while the service is down
covers: peers/unrecorded-payout
  initiate 10
  pay 10 -> settled
  hold
  payout 4 to ada -> unmined
  crash
  mine 3
  start
  flow
  payout: wait -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00

== Amounts above the balance or the limits move nothing
  policy send_max 5
  policy send_daily_max 6
  initiate 10
  pay 10 -> settled
  register purse
  payout 5.000001 to ada -> refused above_send_limit
  payout one 5 to ada -> sent
  payout two 2 to ada -> refused above_daily_limit
  withdraw one 4.9 -> refused above_daily_limit
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= one: payout pending, sent
= one events: payout.pending payout.sent
= one ledger: reserved 5.00, sent 5.00 from in_flight
= holds: psp 4.90, treasury 0.10, ada 5.00
= balance: available 4.90

== A withdrawal goes to the registered wallet
  initiate 10
  pay 10 -> settled
  withdraw 9.9 -> refused withdrawal_wallet_missing
  register purse
  withdraw 9.900001 -> refused insufficient_balance
  withdraw 9.9 -> sent
  withdraw again 0.01 -> refused insufficient_balance
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= withdrawal: withdrawal pending, sent
= withdrawal events: withdraw.sent
= withdrawal ledger: reserved 9.90, sent 9.90 from in_flight
= holds: treasury 0.10, purse 9.90
= balance: nothing

== A withdrawal rejected by the token is returned to the balance
  initiate 10
  pay 10 -> settled
  register purse
  blacklist purse
  withdraw 5 -> failed
  balance available 9.90
  unblacklist purse
  withdraw again 9.9 -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= withdrawal: withdrawal pending, failed (send_failed)
= withdrawal events: withdraw.failed
= withdrawal ledger: reserved 5.00, returned 5.00
= again: withdrawal pending, sent
= again events: withdraw.sent
= again ledger: reserved 9.90, sent 9.90 from in_flight
= holds: treasury 0.10, purse 9.90

== A sent payout is reorged and mined again
  initiate 10
  pay 10 -> settled
  hold
  payout 4 to ada -> unmined
  mine 1
  payout: wait -> operation=mined pending
  mine 1
  payout: wait -> sent
  payout: reorg sending
  flow
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00

== A sent payout is reorged and then rejected by the token
  initiate 10
  pay 10 -> settled
  hold
  payout 4 to ada -> unmined
  mine 1
  payout: wait -> operation=mined pending
  mine 1
  payout: wait -> sent
  payout: reorg sending discard
  blacklist ada
  flow
  payout: wait -> failed
  payout: told payout.failed status=failed
  payout again 9.9 to eve -> sent
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= payout: payout pending, failed (send_failed)
= payout events: payout.pending payout.sent payout.failed
= payout ledger: reserved 4.00, sent 4.00 from in_flight, sent_reversed 4.00
= again: payout pending, sent
= again events: payout.pending payout.sent
= again ledger: reserved 9.90, sent 9.90 from in_flight
= holds: treasury 0.10, eve 9.90
