# Wrong tokens, wrong chains, worthless tokens and dust.

== A wrong token is labelled and held, and the right one still pays
covers: api/wrong-money
  initiate 10
  pay 10 usdt -> WRONG_TOKEN pending
  pay 10 -> settled
= p: pending, confirmed, settled
= p labels: WRONG_TOKEN
= p events: payment.mismatched payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00 usdt, received 10.00, settled 9.90, fee 0.10
= holds: p 10.00 usdt, psp 9.90, treasury 0.10

== A wrong token is refunded
covers: api/wrong-money
  initiate 10
  pay 10 usdt -> WRONG_TOKEN
  refund 4 usdt to ada -> refund=sent
  refund usdt to ada -> refund=sent
  refund usdt to ada -> refused nothing_to_refund
= p: pending
= p labels: WRONG_TOKEN
= p refunds: 4.00 usdt to ada sent, 6.00 usdt to ada sent
= p events: payment.mismatched refund.sent refund.sent
= p ledger: received 10.00 usdt, sent 4.00 usdt from payment, sent 6.00 usdt from payment
= holds: ada 10.00 usdt

== A look-alike is labelled, never counted, and refunded
covers: api/wrong-money
  initiate 10
  pay 10 lookalike -> WRONG_TOKEN pending received=0.00
  refund lookalike to ada -> refund=sent
= p: pending
= p labels: WRONG_TOKEN
= p refunds: 10.00 lookalike to ada sent
= p events: payment.mismatched refund.sent
= p ledger: received 10.00 lookalike, sent 10.00 lookalike from payment
= holds: ada 10.00 lookalike

== A transfer on the wrong chain is labelled and recovered there
covers: api/wrong-money
  initiate 10
  pay 10 on polygon -> WRONG_CHAIN pending
  refund on polygon to ada -> refund=sent
  pay 10 -> settled
= p: pending, confirmed, settled
= p labels: WRONG_CHAIN
= p refunds: 10.00 usdc/polygon to ada sent
= p events: payment.mismatched refund.sent payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: received 10.00 usdc/polygon, sent 10.00 usdc/polygon from payment, received 10.00, settled 9.90, fee 0.10
= holds: psp 9.90, treasury 0.10, ada 10.00 usdc/polygon

== Wrong token and wrong chain together
  initiate 10
  pay 10 usdt on polygon -> WRONG_CHAIN
= p: pending
= p labels: WRONG_TOKEN WRONG_CHAIN
= p events: payment.mismatched
= p ledger: received 10.00 usdt/polygon
= holds: p 10.00 usdt/polygon

== Expiry with only misdirected transfers
covers: api/expired
  initiate 10 expires 600
  pay 10 usdt -> WRONG_TOKEN
  advance 700 -> mismatched
  accept -> refused nothing_to_accept
= p: pending, mismatched (wrong_money)
= p labels: WRONG_TOKEN
= p events: payment.mismatched payment.mismatched payin.mismatched
= p ledger: received 10.00 usdt
= holds: p 10.00 usdt

== A wrong token after the settlement
covers: api/wrong-money
  initiate 10
  pay 10 -> settled
  pay 3 usdt -> WRONG_TOKEN
  refund 5 usdt to ada -> refused refund_too_large
  refund usdt to ada -> refund=sent
= p: pending, confirmed, settled
= p labels: WRONG_TOKEN
= p refunds: 3.00 usdt to ada sent
= p events: payment.confirmed payin.confirmed payment.settled payin.settled payment.mismatched refund.sent
= p ledger: received 10.00, settled 9.90, fee 0.10, received 3.00 usdt, sent 3.00 usdt from payment
= holds: psp 9.90, treasury 0.10, ada 3.00 usdt

== Dust is held in suspense, and neither pays nor prevents cancellation
  initiate 10
  pay 0.000999 -> transfer=ignored
  cancel -> failed
= p: pending, failed (cancelled)
= p events: payment.failed payin.failed
= p ledger: dust 0.000999
= holds: p 0.000999

== Dust in addition to a payment stays in the vault
  initiate 10
  pay 0.0005 -> transfer=ignored
  pay 10 -> settled
= p: pending, confirmed, settled
= p events: payment.confirmed payin.confirmed payment.settled payin.settled
= p ledger: dust 0.0005, received 10.00, settled 9.90, fee 0.10
= holds: p 0.0005, psp 9.90, treasury 0.10
