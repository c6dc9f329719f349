# Amounts and times of the payers' transfers.

== The exact amount
covers: api/exact api/settled peers/unswept
  initiate 10
  pay 10 -> settled
  told payment.confirmed status=confirmed amount=10.00 amount_received=10.00 token=USDC chain=base
  told payment.settled status=settled psp_amount=9.90 treasury_fee=0.10
  told payin.settled status=settled psp_amount=9.90 treasury_fee=0.10
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== In USDT on another chain
  initiate 25.5 usdt polygon
  pay -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 25.50, settled 25.245, fee 0.255
= holds: psp 25.245 usdt/polygon, treasury 0.255 usdt/polygon

== The service chooses the chain
  initiate 10 best
  pay -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Without a fee the treasury gets nothing
  policy fee_bps 0
  initiate 10
  pay -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 10.00
= holds: psp 10.00

== The fee of an odd amount is rounded down, and nothing is lost
  initiate 0.999999
  pay -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 0.999999, settled 0.99, fee 0.009999
= holds: psp 0.99, treasury 0.009999

== An underpayment completed in time
covers: api/short api/completed peers/short-by-fees peers/amounts-missing
  initiate 10
  pay 4 -> mismatched UNDERPAID received=4.00 due=6.00
  told payin.underpaid status=mismatched amount=10.00 amount_received=4.00
  pay 6 -> settled MULTIPLE -UNDERPAID
= p: pending, mismatched (underpaid), confirmed, settled
= p labels: MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 4.00, received 6.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Three partial payments, each with an event
  initiate 10
  pay 1 -> mismatched received=1.00
  pay 2 -> received=3.00
  pay 7 -> settled
= p: pending, mismatched (underpaid), mismatched (underpaid), confirmed, settled
= p labels: MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 1.00, received 2.00, received 7.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A small shortfall within the PSP's tolerance is enough
covers: peers/short-by-fees
  policy tolerance 0.50
  initiate 10
  pay 9.5 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 9.50, settled 9.405, fee 0.095
= holds: psp 9.405, treasury 0.095

== A shortfall beyond the tolerance is an underpayment
  policy tolerance_bps 100
  initiate 10
  pay 9.899999 -> mismatched UNDERPAID
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p events: payment.mismatched payin.underpaid payin.mismatched
= p ledger: received 9.899999
= holds: p 9.899999

== An overpayment waits for the PSP's decision
covers: api/over peers/amounts-missing
  initiate 10
  pay 12 -> mismatched OVERPAID
  told payment.mismatched status=mismatched amount=10.00 amount_received=12.00
= p: pending, mismatched (overpaid)
= p labels: OVERPAID
= p events: payment.mismatched payin.mismatched
= p ledger: received 12.00
= holds: p 12.00

== An overpayment by the second transfer
  initiate 10
  pay 4 -> mismatched UNDERPAID
  pay 8 -> mismatched OVERPAID
= p: pending, mismatched (underpaid), mismatched (overpaid)
= p labels: OVERPAID MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched payment.mismatched payin.mismatched
= p ledger: received 4.00, received 8.00
= holds: p 12.00

== An overpayment is accepted by the PSP's policy
covers: api/over
  policy overpayment accept
  initiate 10
  pay 12 -> settled
  told payment.mismatched status=confirmed amount=10.00 amount_received=12.00 psp_amount=11.88 treasury_fee=0.12
= p: pending, confirmed (overpaid), settled
= p labels: OVERPAID
= p events: payment.mismatched payin.mismatched payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 12.00, settled 11.88, fee 0.12
= holds: psp 11.88, treasury 0.12

== No transfer arrives
covers: api/expired peers/silent-end
  initiate 10 expires 600
  advance 700 -> failed
  told payment.failed status=failed failure_reason=expired amount=10.00 amount_received=0.00
= p: pending, failed (expired)
= p events: payment.failed payin.failed
= holds: nothing

== A transfer mined before the deadline is in time, regardless of its finality
  initiate 10 expires 600
  hold
  advance 400
  pay 10 -> transfer=seen
  advance 300
  flow
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== An underpayment at expiry
covers: api/short-expired api/late
  initiate 10 expires 600
  pay 4 -> mismatched UNDERPAID
  advance 700 -> passed
  pay 6 -> LATE received=10.00
= p: pending, mismatched (underpaid), mismatched (late)
= p labels: LATE MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched payment.mismatched payin.mismatched
= p ledger: received 4.00, received 6.00
= holds: p 10.00

== A transfer after the payment expired
covers: api/late
  initiate 10 expires 600
  advance 700 -> failed
  pay 10 -> mismatched LATE
= p: pending, failed (expired), mismatched (late)
= p labels: LATE
= p events: payment.failed payin.failed payment.mismatched payin.mismatched
= p ledger: received 10.00
= holds: p 10.00

== A transfer four weeks after expiry is found and can be accepted
covers: peers/late-lost api/accepted
  initiate 10 expires 600
  advance 700 -> failed
  stand-still 2419200
  read
  pay 10 -> mismatched LATE
  accept -> settled
= p: pending, failed (expired), mismatched (late), confirmed (accepted), settled
= p labels: LATE
= p events: payment.failed payin.failed payment.mismatched payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A transfer after weeks of downtime is found
covers: peers/late-lost peers/never-credited
  initiate 10 expires 600
  advance 700 -> failed
  stop
  stand-still 2419200
  pay 10
  start
  wait -> mismatched LATE
= p: pending, failed (expired), mismatched (late)
= p labels: LATE
= p events: payment.failed payin.failed payment.mismatched payin.mismatched
= p ledger: received 10.00
= holds: p 10.00

== Cancelled by the PSP, and paid afterwards
covers: api/cancelled api/late peers/silent-end
  initiate 10
  cancel -> failed
  told payin.failed status=failed failure_reason=cancelled
  cancel -> refused payment_not_pending
  pay 10 -> mismatched LATE
= p: pending, failed (cancelled), mismatched (late)
= p labels: LATE
= p events: payment.failed payin.failed payment.mismatched payin.mismatched
= p ledger: received 10.00
= holds: p 10.00

== A payment with a transfer cannot be cancelled
covers: api/cancelled
  initiate 10
  pay 4 unmined
  hold
  mine 1 -> transfer=seen
  cancel -> refused transfer_recorded
  flow
  wait -> mismatched
  cancel -> refused payment_not_pending
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p events: payment.mismatched payin.underpaid payin.mismatched
= p ledger: received 4.00
= holds: p 4.00

== A transfer after the settlement
covers: api/excess peers/second-payment
  initiate 10
  pay 10 -> settled
  pay 10 -> EXCESS excess=10.00
= p: pending, confirmed, settled, settled (more_received)
= p labels: MULTIPLE EXCESS
= p events: payment.confirmed payin.confirmed payment.settled payin.settled payment.mismatched payin.mismatched
= p ledger: received 10.00, settled 9.90, fee 0.10, received 10.00
= holds: p 10.00, psp 9.90, treasury 0.10

== Two payments of the same amount are not confused
covers: peers/equal-amounts
  initiate a 10
  initiate b 10
  b: pay 10 -> settled
= a: pending
= b: pending, confirmed, settled
= b events: payment.confirmed payin.confirmed payment.settled payin.settled
= b ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Many concurrent payments have distinct wallets
covers: peers/address-collisions
  crowd 200
  initiate 10
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Two transfers in one block are judged together
  initiate 10
  pay 4 unmined
  pay 6 unmined
  mine 1 -> settled MULTIPLE
= p: pending, confirmed, settled
= p labels: MULTIPLE
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger in any order: received 4.00, received 6.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10
