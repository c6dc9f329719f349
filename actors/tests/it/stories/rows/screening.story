# Screening of senders and recipients.

== The whole amount is blocked
covers: api/blocked
  initiate 10
  pay 10 from outlaw -> failed FUNDS_BLOCKED
  accept -> refused funds_blocked
  refund to ada -> refused funds_blocked
= p: pending, failed (kyt_blocked)
= p labels: FUNDS_BLOCKED
= p events: payment.failed payin.failed
= p ledger: received 10.00
= holds: p 10.00

== The operator refunds blocked money to a chosen address
covers: api/blocked
  initiate 10
  pay 10 from outlaw -> failed FUNDS_BLOCKED
  operator refund-blocked 4 to bailiff -> refund=sent
  operator refund-blocked to bailiff -> refund=sent
  operator refund-blocked to bailiff -> refused nothing_to_refund
= p: pending, failed (kyt_blocked)
= p labels: FUNDS_BLOCKED
= p refunds: 4.00 to bailiff sent, 6.00 to bailiff sent
= p events: payment.failed payin.failed refund.sent refund.sent
= p ledger: received 10.00, sent 4.00 from payment, sent 6.00 from payment
= holds: bailiff 10.00

== A further transfer after the block
covers: api/more-after-block
  initiate 10
  pay 10 from outlaw -> failed
  pay 5 -> transfers=2 final=2
= p: pending, failed (kyt_blocked)
= p labels: FUNDS_BLOCKED
= p events: payment.failed payin.failed
= p ledger: received 10.00, received 5.00
= holds: p 15.00

== A clean transfer after the block is refunded with the blocked one
covers: api/more-after-block
  initiate 10
  pay 10 from outlaw -> failed FUNDS_BLOCKED
  pay 5 -> transfers=2 final=2 received=5.00
  refund to ada -> refused funds_blocked
  operator refund-blocked 15.000001 to bailiff -> refused refund_too_large
  operator refund-blocked to bailiff -> refund=sent
  operator refund-blocked to bailiff -> refused nothing_to_refund
= p: pending, failed (kyt_blocked)
= p labels: FUNDS_BLOCKED
= p refunds: 15.00 to bailiff sent
= p events: payment.failed payin.failed refund.sent
= p ledger: received 10.00, received 5.00, sent 15.00 from payment
= holds: bailiff 15.00

== Blocked dust does not affect the payment
covers: api/tainted-dust
  initiate 10
  pay 1 from outlaw -> pending FUNDS_BLOCKED verdict=block
  pay 10 -> settled
= p: pending, confirmed, settled
= p labels: FUNDS_BLOCKED
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 1.00, received 10.00, settled 9.90, fee 0.10
= holds: p 1.00, psp 9.90, treasury 0.10

== Under review, and allowed by the provider
covers: api/review
  kyt payer review
  initiate 10
  pay 10 -> pending IN_REVIEW verdict=review
  kyt payer allow
  wait -> settled -IN_REVIEW
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Under review beyond the deadline, and allowed by the operator
covers: api/review
  kyt payer review
  initiate 10 expires 600
  pay 10 -> IN_REVIEW
  advance 700 -> pending IN_REVIEW passed
  operator transfer allow -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Under review, and blocked by the operator
covers: api/review
  kyt payer review
  initiate 10
  pay 10 -> IN_REVIEW
  operator transfer block -> failed FUNDS_BLOCKED -IN_REVIEW
= p: pending, failed (kyt_blocked)
= p labels: FUNDS_BLOCKED
= p events: payment.failed payin.failed
= p ledger: received 10.00
= holds: p 10.00

== The provider is down for a while
covers: api/review
  kyt away
  initiate 10
  pay 10 -> IN_REVIEW pending
  kyt back
  wait -> settled -IN_REVIEW
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Blocked money is released by the operator while the payment is open
  initiate 10
  pay 4 from outlaw -> FUNDS_BLOCKED pending
  operator transfer allow -> mismatched UNDERPAID -FUNDS_BLOCKED
  pay 6 -> settled
= p: pending, mismatched (underpaid), confirmed, settled
= p labels: MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 4.00, received 6.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A refund to a blocked address fails, and another one is sent
  kyt crook block
  initiate 10
  pay 12 -> mismatched OVERPAID
  refund to crook -> refund=failed
  refund to ada -> refund=sent
= p: pending, mismatched (overpaid)
= p labels: OVERPAID
= p refunds: 12.00 to crook failed, 12.00 to ada sent
= p events: payment.mismatched payin.mismatched refund.failed refund.sent
= p ledger: received 12.00, sent 12.00 from payment
= holds: ada 12.00

== A refund waits for the operator's decision about its address
  kyt ada review
  initiate 10
  pay 4 -> mismatched
  refund to ada -> refund=pending address=review
  operator refund-address allow -> refund=sent
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to ada sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: ada 4.00
