# Transfers: received money is forwarded to a customer's wallet.

== A transfer reaches the customer
  transfer t 10 to ada
  t: pay 10 -> settled
= t: pending, confirmed, settled
= t shows: settled
= t events: transfer.settled
= t ledger: received 10.00, delivered 10.00
= holds: ada 10.00

== An underpaid transfer is completed in time
  transfer t 10 to ada
  t: pay 4 -> shows=underpaid
  t: pay 6 -> settled
= t: pending, mismatched (underpaid), confirmed, settled
= t shows: settled
= t labels: MULTIPLE
= t events: transfer.underpaid transfer.settled
= t ledger: received 4.00, received 6.00, delivered 10.00
= holds: ada 10.00

== The surplus of a transfer is refundable
  transfer t 10 to ada
  t: pay 12 -> settled OVERPAID
  t: refund to eve -> refund=sent
= t: pending, confirmed (overpaid), settled
= t shows: settled
= t labels: OVERPAID
= t refunds: 2.00 to eve sent
= t events: transfer.mismatched transfer.settled refund.sent
= t ledger: received 12.00, delivered 10.00, sent 2.00 from payment
= holds: ada 10.00, eve 2.00

== An unpaid transfer fails
  transfer t 10 to ada expires 600
  advance 700 -> failed
= t: pending, failed (expired)
= t shows: failed
= t events: transfer.failed
= holds: nothing

== A transfer rejected by the token fails and is refunded
  blacklist crook
  transfer t 10 to crook
  t: pay 10 -> shows=failed
  t: refund to eve -> failed refund=sent
= t: pending, confirmed, confirmed (settlement_failed), failed (settlement_failed)
= t shows: failed
= t labels: SETTLEMENT_FAILED
= t refunds: 10.00 to eve sent
= t events: transfer.failed refund.sent
= t ledger: received 10.00, sent 10.00 from payment
= holds: eve 10.00

== The payment of a transfer is reorged and mined again
  pause sending
  transfer t 10 to ada
  hold
  t: pay 10 -> transfer=seen
  mine 1
  t: wait -> confirmed
  t: reorg transfer -> pending REORGED
  flow
  t: wait -> confirmed
  lift sending
  t: wait -> settled
= t: pending, confirmed, pending (reorged), confirmed, settled
= t shows: settled
= t labels: REORGED
= t events: transfer.reorged transfer.settled
= t ledger: received 10.00, orphaned 10.00, received 10.00, delivered 10.00
= holds: ada 10.00

== A transfer paid only in a wrong token fails with that reason
  transfer t 10 to ada expires 600
  t: pay 10 usdt -> WRONG_TOKEN
  advance 700 -> shows=failed
  t: refund 10 usdt to eve -> refund=sent
= t: pending, mismatched (wrong_money)
= t shows: failed
= t labels: WRONG_TOKEN
= t refunds: 10.00 usdt to eve sent
= t events: transfer.mismatched transfer.mismatched transfer.failed refund.sent
= t ledger: received 10.00 usdt, sent 10.00 usdt from payment
= holds: eve 10.00 usdt

== An underpaid transfer is accepted and forwarded
  transfer t 10 to ada
  t: pay 4 -> shows=underpaid
  t: accept expected 4 -> settled
= t: pending, mismatched (underpaid), confirmed (accepted), settled
= t shows: settled
= t labels: UNDERPAID
= t events: transfer.underpaid transfer.settled
= t ledger: received 4.00, delivered 4.00
= holds: ada 4.00

== A cancelled transfer that is paid afterwards is refunded
  transfer t 10 to ada
  t: cancel -> failed
  t: told transfer.failed status=failed failure_reason=cancelled
  t: pay 10 -> mismatched LATE
  t: refund to eve -> refund=sent
= t: pending, failed (cancelled), mismatched (late)
= t shows: failed
= t labels: LATE
= t refunds: 10.00 to eve sent
= t events: transfer.failed transfer.mismatched refund.sent
= t ledger: received 10.00, sent 10.00 from payment
= holds: eve 10.00

== A transfer paid with blocked money fails and holds the money
  transfer t 10 to ada
  t: pay 10 from outlaw -> failed FUNDS_BLOCKED
  t: told transfer.failed status=failed failure_reason=kyt_blocked
  t: refund to eve -> refused funds_blocked
= t: pending, failed (kyt_blocked)
= t shows: failed
= t labels: FUNDS_BLOCKED
= t events: transfer.failed
= t ledger: received 10.00
= holds: t 10.00
