# Failures of the service, of the chains' endpoints and of the PSP's receiver lose nothing.

== An endpoint limits the block range
covers: peers/rpc-limits
  faults ranges 2
  initiate 10
  stop
  pay 10
  mine 60
  start
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== An endpoint fails sometimes, or its answers are lost
covers: peers/rpc-limits
  initiate 10
  faults errors 0.005 limited 0.005 lost 0.005
  pay 10 -> settled
  faults none
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== An endpoint omits, repeats and invents logs
covers: peers/never-credited
  initiate 10
  faults empty 0.3 duplicate 0.3 forged 0.3 stale 0.2
  pay 10 -> settled
  faults none
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The watcher dies while transfers arrive
covers: peers/never-credited
  initiate 10
  kill watcher
  pay 10
  kill watcher
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A chain halts, and deadlines are extended by the outage
covers: peers/never-credited
  initiate 10 expires 600
  stand-still 900 -> moved
  pay 10 -> settled
= p: pending, pending (deadline_moved), confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A payment actor panics and continues
  initiate 10
  panic
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Every actor of the service dies once
  initiate 10
  kill shard
  kill screening
  pay 4 -> mismatched
  kill settler
  kill webhooks
  pay 6 -> settled
  kill sendings
  payout 4 to ada -> sent
= p: pending, mismatched (underpaid), confirmed, settled
= p labels: MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 4.00, received 6.00, settled 9.90, fee 0.10
= payout: payout pending, sent
= payout events: payout.pending payout.sent
= payout ledger: reserved 4.00, sent 4.00 from in_flight
= holds: psp 5.90, treasury 0.10, ada 4.00

== The service crashes between every two steps
covers: peers/never-credited
  initiate 10
  restart
  pay 4
  restart
  wait -> mismatched UNDERPAID
  crash
  pay 6
  start
  wait -> paid
  restart
  wait -> settled
= p: pending, mismatched (underpaid), confirmed, settled
= p labels: MULTIPLE
= p events: payment.mismatched payin.underpaid payin.mismatched
    payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 4.00, received 6.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The receiver rejects each event twice
covers: peers/endpoint-silent peers/duplicates
  receiver hesitant 2
  initiate 10
  pay 10 -> settled
  tried 3
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== Events wait in the database while receiver and service are down
covers: peers/queue-outside peers/duplicates
  receiver hesitant 1
  initiate 10
  pay 10 -> confirmed
  restart
  wait -> settled
  restart gently
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The service crashes while the receiver fails, and every event is delivered
covers: peers/queue-outside
  receiver hesitant 2
  initiate 10
  pay 10 -> confirmed
  crash
  mine 3
  start
  wait -> settled
  delivered payment.confirmed payin.confirmed payment.settled payin.settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The PSP wants only one of two event names
  policy families payin
  initiate 10
  pay 10 -> settled
  delivered payin.confirmed payin.settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== The PSP wants only the other event name, and events without it are sent anyway
  policy families payment
  initiate 10
  pay 4 -> mismatched
  refund 4 to purse -> refund=sent
  delivered payment.mismatched refund.sent
= p: pending, mismatched (underpaid)
= p labels: UNDERPAID
= p refunds: 4.00 to purse sent
= p events: payment.mismatched payin.underpaid payin.mismatched refund.sent
= p ledger: received 4.00, sent 4.00 from payment
= holds: purse 4.00

== The PSP wants both event names, the default
  initiate 10
  pay 10 -> settled
  delivered payment.confirmed payin.confirmed payment.settled payin.settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10

== A PSP that requires customers accepts no payment without one
  policy require_customer yes
  initiate 10 -> refused customer_required
= holds: nothing

== A paused chain accepts no new payments and finishes existing ones
  initiate 10
  pause chain:base
  initiate b 10 -> refused chain_paused
  pay 10 -> confirmed
  lift chain:base
  wait -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10
