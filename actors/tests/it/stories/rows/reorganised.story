# Reorgs.

== A transfer is mined again elsewhere
covers: peers/reorg-after-paid
  initiate 10
  hold
  pay 10 -> transfer=seen
  reorg 1 -> REORGED transfer=orphaned
  flow
  wait -> settled
= p: pending, confirmed, settled
= p labels: REORGED
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A transfer is permanently dropped
  initiate 10 expires 600
  hold
  pay 10 -> transfer=seen
  reorg 1 discard -> REORGED
  flow
  advance 2000 -> failed
= p: pending, failed (expired)
= p labels: REORGED
= p events: payment.failed payin.failed
= holds: nothing

== A counted transfer is removed by a deeper reorg and mined again
covers: api/orphaned peers/reorg-after-paid
  pause settlement
  initiate 10
  hold
  pay 10 -> transfer=seen
  mine 1 -> confirmed
  reorg transfer -> pending REORGED
  flow
  wait -> confirmed
  lift settlement
  wait -> settled
= p: pending, confirmed, pending (reorged), confirmed, settled
= p labels: REORGED
= p events: payment.confirmed payin.confirmed payment.reorged
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, orphaned 10.00, received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A settlement is reorged before it is final
covers: peers/reorg-after-paid
  initiate 10
  hold
  pay 10 -> transfer=seen
  mine 1 -> confirmed unmined
  mine 1 -> operation=mined confirmed
  reorg settlement
  flow
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A final settlement is reorged and mined again
covers: api/settlement-orphaned peers/reorg-after-paid
  initiate 10
  hold
  pay 10 -> transfer=seen
  mine 1 -> confirmed unmined
  mine 1 -> operation=mined confirmed
  mine 1 -> settled
  reorg settlement -> REORGED settlement=queued
  flow
  wait -> settlement=settled
= p: pending, confirmed, settled, settled (reorged), settled
= p labels: REORGED
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
    payment.reorged payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10,
    settlement_reversed 9.90, fee_reversed 0.10, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Part of an underpayment is reorged
covers: api/orphaned
  initiate 10
  hold
  pay 4 -> transfer=seen
  mine 1 -> mismatched UNDERPAID
  reorg transfer -> pending REORGED
  flow
  wait -> mismatched UNDERPAID
= p: pending, mismatched (underpaid), pending (reorged), mismatched (underpaid)
= p labels: UNDERPAID REORGED
= p events: payment.mismatched payin.underpaid payin.mismatched payment.reorged
    payment.mismatched payin.underpaid payin.mismatched
= p ledger: received 4.00, orphaned 4.00, received 4.00
= holds: p 4.00

== A final settlement is reorged with its transfer, and both are mined again
covers: api/settlement-orphaned
  initiate 10
  hold
  pay 10 -> transfer=seen
  mine 1 -> confirmed unmined
  mine 1 -> operation=mined confirmed
  mine 1 -> settled
  reorg transfer -> pending REORGED -settlement=settled
  flow
  wait -> settled settlement=settled
= p: pending, confirmed, settled, pending (reorged), confirmed, settled
= p labels: REORGED
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
    payment.reorged payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger in any order: received 10.00, settled 9.90, fee 0.10,
    orphaned 10.00, settlement_reversed 9.90, fee_reversed 0.10, received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A final settlement is reorged with its transfer, and neither is mined again
covers: api/settlement-orphaned
  initiate 10 expires 600
  hold
  pay 10 -> transfer=seen
  mine 1 -> confirmed unmined
  mine 1 -> operation=mined confirmed
  mine 1 -> settled
  reorg transfer discard -> pending REORGED -settlement=settled
  flow
  advance 2000 -> failed
= p: pending, confirmed, settled, pending (reorged), failed (expired)
= p labels: REORGED
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
    payment.reorged payment.failed payin.failed
= p ledger: received 10.00, settled 9.90, fee 0.10, orphaned 10.00, settlement_reversed 9.90, fee_reversed 0.10
= holds: nothing
