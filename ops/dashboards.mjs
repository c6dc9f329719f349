#!/usr/bin/env node
// Writes the dashboards in ops/grafana, which Grafana imports as they are.
//
//   node ops/dashboards.mjs            write them
//   node ops/dashboards.mjs --check    compare them with the files; exit code 1 if one differs
//
// A panel is a title, a description for the operator at night, and its queries by legend. Its options:
//   unit, decimals, max        of the values
//   signed                     values may be negative
//   orange, red                values from there on are bad
//   green                      values from there on are good; those below are red, or orange from `orange` on
//   stack, points              areas on each other, or points, instead of lines
//   runbook                    page and heading of its runbook
//   link                       URL behind a series
//   hidden                     columns of a table that are not shown
//   none                       text if there is no data, which is then usual
import { readFileSync, writeFileSync } from "node:fs";

const COLUMNS = 24;
const SCHEMA_VERSION = 42;
const DATASOURCE = { type: "prometheus", uid: "${datasource}" };
/** A value that fits there is one line of the files, and so is an object of a panel. */
const LINE_MAX = 128;
const PANEL_INDENT = 4;

const row = (title) => ({ type: "row", title });
const panel = (type, width, height) => (title, description, queries, options = {}) =>
  ({ type, width, height, title, description, queries, ...options });
const stat = panel("stat", 3, 4);
const plot = panel("timeseries", 8, 8);
const table = panel("table", 8, 8);

const NODE = 'instance=~"$node"';
const CHAIN = 'chain=~"$chain"';
const by = (labels) => (labels ? ` by (${labels}) ` : "");
/** Increase per second, by these labels. */
const rate = (series, labels) => `sum${by(labels)}(rate(${series}[$__rate_interval]))`;
/** Quantile of a histogram, by these labels. */
const quantile = (q, histogram, matchers, labels) =>
  `histogram_quantile(${q}, ${rate(`${histogram}_bucket{${matchers}}`, labels ? `${labels}, le` : "le")})`;
/** Entries of these kinds. Each node counts all of them. */
const attention = (kinds) => `max by (kind) (payferry_attention{kind=~"${kinds.join("|")}"})`;
/** Payments with this status by chain: one node counts them. */
const payments = (status) => `sum by (chain) (payferry_payments{status="${status}",${CHAIN}})`;

const MONEY_WAITS = [
  "in_review", "funds_blocked", "sending_in_review", "refund_approval", "approval_open", "settlement_failed", "unsettled", "overdue",
  "operation_overdue", "sending_overdue", "transfer_held", "transfer_unapplied", "transfer_set_aside", "received_money_orphaned",
  "settlement_orphaned", "overdrawn",
];
const WEBHOOKS_WAIT = ["breaker_open", "webhooks_delayed", "webhooks_exhausted"];

const supervision = {
  description: "What fails or is stopped, the actors, and the writes to the database. Look here first.",
  variables: ["node"],
  panels: [
    row("Now"),
    stat("Firing alerts", "Alerts of ops/alerts.yml that fire.", {
      "": 'sum(ALERTS{alertname=~"Payferry.+",alertstate="firing"}) or vector(0)',
    }, { red: 1 }),
    stat("Needs attention", "Entries of the attention feed that no operator has acknowledged.", {
      "": "sum(max by (kind) (payferry_attention))",
    }, { orange: 1 }),
    stat("Quarantined", "Payments, payouts, withdrawals and customers that are stopped until an operator releases them.", {
      "": "max(payferry_payments_quarantined + payferry_sendings_quarantined + payferry_customers_quarantined)",
    }, { red: 1, runbook: "payments#quarantined" }),
    stat("Invariants violated", "Wrong writes that were stopped, in a day. Each is a defect.", {
      "": "sum(increase(payferry_invariant_violations_total[1d])) + sum(increase(payferry_journal_refused_total[1d]))",
    }, { red: 1, decimals: 0, runbook: "payments#invariant-violated" }),
    stat("Restarts", "Actors that failed and were started again, in an hour.", {
      "": `sum(increase(payferry_actor_restarts_total{${NODE}}[1h]))`,
    }, { orange: 1, decimals: 0, runbook: "payments#actors-restart" }),
    stat("Writes blocked", "Nodes that cannot commit.", {
      "": `sum(payferry_journal_hindered{${NODE}})`,
    }, { red: 1, runbook: "journal#database-refuses-writes" }),
    stat("Live payments", "Payments that have not ended.", { "": "sum(payferry_payments_live)" }),
    stat("Nodes that answer", "Nodes that Prometheus can read.", {
      "": 'sum(up{job="payferry"})',
    }, { green: 1, runbook: "process#service-is-down" }),

    row("Alerts and attention"),
    table("Firing alerts", "The runbook of each alert is in Alertmanager's notification. Empty if none fires.", {
      "": 'sum by (alertname, severity, instance, chain, kind) (ALERTS{alertname=~"Payferry.+",alertstate="firing"})',
    }, { hidden: ["Time", "Value"], none: "No alert fires" }),
    plot("Needs attention", "Entries by kind. Each series links to its list. Empty if nothing needs attention.", {
      "{{kind}}": "max by (kind) (payferry_attention) > 0",
    }, { stack: true, link: "${console}/ops/view/stuck?kind=${__field.labels.kind}", none: "Nothing needs attention" }),
    plot("Quarantined", "Stopped after too many failures in a minute, or because of a violated invariant.", {
      payments: "max(payferry_payments_quarantined)",
      "payouts and withdrawals": "max(payferry_sendings_quarantined)",
      customers: "max(payferry_customers_quarantined)",
    }, { stack: true, runbook: "payments#quarantined" }),

    row("Actors"),
    plot("Restarts by kind and cause", "A panic is a defect; an error usually comes from the database or a chain. Empty if no actor failed.", {
      "{{kind}}: {{cause}}": `sum by (kind, cause) (increase(payferry_actor_restarts_total{${NODE}}[$__rate_interval])) > 0`,
    }, { points: true, runbook: "payments#actors-restart", none: "No actor was restarted" }),
    plot("Actors by kind", "Actors in memory. A payment that only waits has none.", {
      "{{kind}}": `sum by (kind) (payferry_actors_live{${NODE}})`,
      "payments that only wait": `sum(payferry_payments_waiting{${NODE}})`,
    }),
    plot("Messages per second", "Messages that actors of a kind took; of the journal: writes.", {
      "{{kind}}": rate(`payferry_actor_messages_total{${NODE}}`, "kind"),
    }, { unit: "ops" }),
    plot("Mailbox wait, p99", "Time that a message waits before it is taken. Above 1 s, actors of the kind are too slow.", {
      "{{kind}}": quantile(0.99, "payferry_actor_mailbox_wait_seconds", NODE, "kind"),
    }, { unit: "s", red: 1, runbook: "payments#actors-are-slow" }),
    plot("Handling time, p99", "Time of one message, with its wait for the journal.", {
      "{{kind}}": quantile(0.99, "payferry_actor_handling_seconds", NODE, "kind"),
    }, { unit: "s", runbook: "payments#actors-are-slow" }),
    plot("Messages that wait", "Length of the mailboxes by kind; of the journal: its queues.", {
      "{{kind}}": `sum by (kind) (payferry_actor_mailbox_messages{${NODE}})`,
    }),
    plot("Payments without an actor", "Live payments that were found without an actor and got one, in an hour.", {
      "{{instance}}": `increase(payferry_payments_unattended_total{${NODE}}[1h])`,
    }, { orange: 3, runbook: "payments#payments-without-an-actor" }),
    plot("Start", "Time from the start of a node until every live payment had its actor again.", {
      "{{instance}}": `payferry_rehydration_seconds{${NODE}}`,
    }, { unit: "s" }),
    plot("Requests to providers, p99", "Time of a request to the screening or identity provider, with failures.", {
      screening: quantile(0.99, "payferry_screening_request_seconds", NODE),
      identity: quantile(0.99, "payferry_identity_request_seconds", NODE),
    }, { unit: "s", runbook: "screening#screening-is-unavailable", none: "No requests" }),

    row("Journal and database"),
    plot("Commits and writes per second", "The journal commits writes in groups.", {
      writes: rate(`payferry_journal_group_units_sum{${NODE}}`),
      commits: rate(`payferry_journal_commit_seconds_count{${NODE}}`),
    }, { unit: "ops" }),
    plot("Commit time", "Time from BEGIN to the end of COMMIT. A p99 above 0.1 s means a slow disk.", {
      p50: quantile(0.5, "payferry_journal_commit_seconds", NODE),
      p99: quantile(0.99, "payferry_journal_commit_seconds", NODE),
    }, { unit: "s", orange: 0.1, runbook: "journal#journal-queue-grows" }),
    plot("Writes that wait for a commit", "Above 512, the database is too slow for the load.", {
      "{{instance}}: {{queue}}": `payferry_journal_queued_units{${NODE}}`,
    }, { red: 512, runbook: "journal#journal-queue-grows" }),
    plot("Writes that were not committed, per second", "Conflicts and retries are usual. Failed and refused writes are not.", {
      conflicts: rate(`payferry_journal_conflicts_total{${NODE}}`),
      retries: rate(`payferry_journal_retries_total{${NODE}}`),
      failed: rate(`payferry_journal_failed_total{${NODE}}`),
      refused: rate(`payferry_journal_refused_total{${NODE}}`),
    }, { unit: "ops", runbook: "payments#invariant-violated" }),
    plot("Statements and commits per second", "By pool of connections.", {
      "statements, {{pool}}": rate(`payferry_database_statements_total{${NODE}}`, "pool"),
      "commits, {{pool}}": rate(`payferry_database_commits_total{${NODE}}`, "pool"),
    }, { unit: "ops" }),
    plot("Old rows deleted in a day", "By table. Undelivered events are never deleted.", {
      "{{table}}": "sum by (table) (increase(payferry_pruned_rows_total[1d]))",
    }, { runbook: "journal#events-are-not-pruned" }),
  ],
};

const money = {
  description: "Payments, money that waits, refunds, the ledger, the vaults and the gas money.",
  variables: ["chain"],
  panels: [
    row("Now"),
    stat("Settled per minute", "Payments settled, as a mean of five minutes.", {
      "": `sum(clamp_min(delta(${payments("settled")}[5m:]), 0)) / 5`,
    }, { decimals: 1 }),
    stat("Live payments", "Payments that have not ended.", { "": `sum(payferry_payments_live{${CHAIN}})` }),
    stat("Money waits", "Entries of the attention feed about money that does not move by itself.", {
      "": `sum(${attention(MONEY_WAITS)})`,
    }, { orange: 1, runbook: "payments#payment-needs-a-decision" }),
    stat("Pauses", "Pauses in force.", { "": "sum(max by (scope) (payferry_paused))" }, { orange: 1, runbook: "process#paused" }),
    stat("Ledger imbalance", "Tokens by which the ledger does not add up.", {
      "": `sum(max by (chain, token) (payferry_ledger_imbalance{${CHAIN}})) / 1e6`,
    }, { red: 0.000001, runbook: "ledger#ledger-imbalance" }),
    stat("Vault differences", "Vaults whose balance on the chain differs from the ledger.", {
      "": "max(payferry_reconcile_differences)",
    }, { red: 1, runbook: "ledger#vault-difference" }),
    stat("Failed operations", "Settlements, refunds, payouts and withdrawals that failed permanently, in a day.", {
      "": `sum(increase(payferry_settler_operations_failed_total{${CHAIN}}[1d]))`,
    }, { red: 1, decimals: 0, runbook: "settlement#settlement-failed" }),
    stat("Gas money lasts", "At the cost of the last day, on the chain where it runs out first; at most a year.", {
      "": `clamp_max(min(max by (chain) (payferry_settler_gas_balance_gwei{${CHAIN}}) / sum by (chain) (increase(payferry_settler_gas_spent_gwei_total{${CHAIN}}[1d]))) * 86400, 31536000)`,
    }, { unit: "s", orange: 86400, green: 604800, runbook: "settlement#gas-money-runs-out" }),

    row("Payments"),
    plot("Settled per minute and chain", "Mean of five minutes.", {
      "{{chain}}": `clamp_min(delta(${payments("settled")}[5m:]), 0) / 5`,
    }, { stack: true, runbook: "payments#transitions-are-slow" }),
    plot("Initiated per minute", "New payments by chain and token.", {
      "{{chain}} {{token}}": `60 * ${rate(`payferry_payments_initiated_total{${CHAIN}}`, "chain, token")}`,
    }, { stack: true }),
    plot("Payments by status", "All payments since the beginning.", {
      "{{status}}": `sum by (status) (payferry_payments{${CHAIN}})`,
    }),
    plot("Live payments by status", "Payments that have not ended.", {
      "{{status}}": `sum by (status) (payferry_payments_live{${CHAIN}})`,
    }, { stack: true }),
    plot("Time to confirmed and settled", "From pending to confirmed, with the time that the payer takes; from confirmed to settled.", {
      "{{from}} to {{to}}, p50": quantile(0.5, "payferry_payment_transition_seconds", 'to=~"confirmed|settled"', "from, to"),
      "{{from}} to {{to}}, p99": quantile(0.99, "payferry_payment_transition_seconds", 'to=~"confirmed|settled"', "from, to"),
    }, { unit: "s", runbook: "payments#transitions-are-slow" }),
    plot("Events of payments per minute", "By name of the event.", {
      "{{event}}": `60 * ${rate("payferry_payment_events_total", "event")}`,
    }),

    row("Money that waits"),
    plot("Money waits", "Entries of the attention feed by kind. Each series links to its list. Empty if none waits.", {
      "{{kind}}": `${attention(MONEY_WAITS)} > 0`,
    }, { stack: true, link: "${console}/ops/view/stuck?kind=${__field.labels.kind}", none: "No money waits" }),
    plot("Screening", "Transfers that wait for a verdict, and requests in progress.", {
      "without a verdict": "sum(payferry_screening_waiting_transfers)",
      "requests in progress": "sum(payferry_screening_in_flight_requests)",
      "transfers held, {{chain}}": `max by (chain) (payferry_chain_held_transfers{${CHAIN}})`,
    }, { runbook: "screening#screening-is-unavailable" }),
    plot("Verdicts and errors of screening per minute", "Each failed request is repeated.", {
      "{{decision}}": `60 * ${rate("payferry_screening_verdicts_total", "decision")}`,
      errors: `60 * ${rate("payferry_screening_errors_total")}`,
      "review overdue": `60 * ${rate("payferry_review_overdue_total")}`,
    }, { runbook: "screening#money-in-review-or-blocked" }),
    plot("Checks of customers", "Checks that wait for the identity provider or the person.", {
      queued: "max(payferry_identity_queued_checks)",
      open: "max(payferry_identity_open_checks)",
      overdue: "max(payferry_identity_overdue_checks)",
    }, { runbook: "identity#checks-are-overdue" }),
    plot("Verdicts and callbacks of identity per hour", "Callbacks that are missing are replaced by polling.", {
      "verdict {{verdict}}": "sum by (verdict) (increase(payferry_identity_verdicts_total[1h]))",
      "callback {{outcome}}": "sum by (outcome) (increase(payferry_identity_callbacks_total[1h]))",
      errors: "sum(increase(payferry_identity_errors_total[1h]))",
    }, { runbook: "identity#callbacks-do-not-arrive" }),
    plot("Pauses", "Pauses in force by kind. `unreconciled` is set by the service until `payferry reconcile` lifts it.", {
      "{{scope}}": "max by (scope) (payferry_paused)",
    }, { stack: true, runbook: "process#paused" }),

    row("Refunds and operations"),
    plot("Refunds per hour", "Events of refunds. Empty until the first refund.", {
      "{{event}}": 'sum by (event) (increase(payferry_payment_events_total{event=~"refund_.+"}[1h]))',
    }, { none: "No refund yet" }),
    plot("Operations that wait", "Settlements, refunds, payouts and withdrawals that wait for a transaction.", {
      "{{chain}}": `max by (chain) (payferry_settler_queued_operations{${CHAIN}})`,
    }, { runbook: "settlement#operations-wait" }),
    plot("Failed operations per hour", "Operations that failed permanently.", {
      "{{chain}}": `sum by (chain) (increase(payferry_settler_operations_failed_total{${CHAIN}}[1h]))`,
    }, { red: 1, runbook: "settlement#settlement-failed" }),

    row("Ledger and vaults"),
    plot("Ledger imbalance", "Tokens by which the ledger does not add up.", {
      "{{chain}} {{token}}": `max by (chain, token) (payferry_ledger_imbalance{${CHAIN}}) / 1e6`,
    }, { red: 0.000001, runbook: "ledger#ledger-imbalance" }),
    plot("Age of the checks", "Time since the ledger check reached the end, and since the vaults were compared.", {
      ledger: "max(payferry_ledger_check_age_seconds)",
      vaults: "max(payferry_reconcile_age_seconds)",
    }, { unit: "s", runbook: "ledger#ledger-check-is-late" }),
    plot("Compared per minute", "Subjects that the ledger check compared, and postings that it read.", {
      subjects: `60 * ${rate("payferry_ledger_checked_total")}`,
      postings: "60 * clamp_min(deriv(max(payferry_ledger_check_position)[5m:]), 0)",
    }, { runbook: "ledger#ledger-check-is-late" }),
    plot("Vaults", "Vaults that differ, and chains that could not be read.", {
      differences: "max(payferry_reconcile_differences)",
      "chains not read": "max(payferry_reconcile_chains_unread)",
    }, { red: 1, runbook: "ledger#vault-difference" }),
    plot("Payments reconciled in an hour", "Payments whose vaults were compared with the ledger, and completed runs.", {
      payments: "sum(increase(payferry_reconcile_payments_total[1h]))",
      runs: "sum(increase(payferry_reconcile_runs_total[1h]))",
    }, { runbook: "ledger#chains-were-not-reconciled", none: "No run with payments yet" }),

    row("Gas"),
    plot("Gas money", "Native coins of the account that pays for gas; of two accounts the lower one.", {
      "{{chain}}": `max by (chain) (payferry_settler_gas_balance_gwei{${CHAIN}}) / 1e9`,
    }, { runbook: "settlement#gas-money-runs-out" }),
    plot("Cost of gas per hour", "Native coins.", {
      "{{chain}}": `sum by (chain) (increase(payferry_settler_gas_spent_gwei_total{${CHAIN}}[1h])) / 1e9`,
    }, { runbook: "settlement#gas-is-expensive" }),
    plot("Price of gas", "Gwei that a unit of gas cost.", {
      "{{chain}}": `${rate(`payferry_settler_gas_spent_gwei_total{${CHAIN}}`, "chain")} / ${rate(`payferry_settler_gas_used_total{${CHAIN}}`, "chain")}`,
    }, { runbook: "settlement#gas-is-expensive" }),
  ],
};

const chains = {
  description: "Heads, endpoints, reorganisations and wrong answers of each chain, and its settler.",
  variables: ["chain"],
  panels: [
    row("Now"),
    stat("Oldest head", "Age of the newest block, of the chain where it is oldest.", {
      "": `max(min by (chain) (payferry_chain_head_age_seconds{${CHAIN}}))`,
    }, { unit: "s", orange: 30, red: 60, runbook: "chains#chain-has-no-new-blocks" }),
    stat("Read lag", "Blocks that are not read yet, of the chain with the most.", {
      "": `max(payferry_chain_read_lag_blocks{${CHAIN}})`,
    }, { red: 50, runbook: "chains#watcher-falls-behind" }),
    stat("Chains degraded", "Chains that cannot be read.", {
      "": `sum(max by (chain) (payferry_chain_trouble{${CHAIN}}))`,
    }, { red: 1, runbook: "chains#chain-is-degraded" }),
    stat("Settlers blocked", "Chains on which nothing is sent.", {
      "": `sum(max by (chain) (payferry_settler_trouble{${CHAIN}}))`,
    }, { red: 1, runbook: "settlement#settler-is-delayed" }),
    stat("Unusable endpoints", "Endpoints that a node passes over.", {
      "": `sum(1 - payferry_chain_endpoint_usable{${CHAIN}})`,
    }, { orange: 1, runbook: "chains#endpoint-is-unusable" }),
    stat("Reorganisations", "In an hour.", {
      "": `sum(increase(payferry_chain_reorgs_total{${CHAIN}}[1h]))`,
    }, { decimals: 0, runbook: "chains#reorgs" }),
    stat("Transfers held", "Transfers on which two endpoints do not agree.", {
      "": `sum(max by (chain) (payferry_chain_held_transfers{${CHAIN}}))`,
    }, { red: 1, runbook: "chains#endpoints-disagree" }),
    stat("Wrong logs", "Logs that endpoints omitted, repeated or invented, in a day.", {
      "": ["missed", "left_out", "repeated", "forged"]
        .map((how) => `sum(increase(payferry_chain_logs_${how}_total{${CHAIN}}[1d]))`).join(" + "),
    }, { red: 1, decimals: 0, runbook: "chains#endpoint-returns-wrong-logs" }),

    row("Heads"),
    plot("Age of the newest block", "Above 60 s, the chain or all of its endpoints have stopped. Deadlines then wait.", {
      "{{chain}}": `min by (chain) (payferry_chain_head_age_seconds{${CHAIN}})`,
    }, { unit: "s", red: 60, runbook: "chains#chain-has-no-new-blocks" }),
    plot("Blocks that are not read yet", "If it stays above 50, the watcher does not keep up.", {
      "{{chain}}": `max by (chain) (payferry_chain_read_lag_blocks{${CHAIN}})`,
    }, { red: 50, runbook: "chains#watcher-falls-behind" }),
    plot("Blocks per minute", "Blocks that the chain made, and blocks that were read.", {
      "{{chain}}, made": `60 * clamp_min(deriv(max by (chain) (payferry_chain_head_number{${CHAIN}})[1m:]), 0)`,
      "{{chain}}, read": `60 * ${rate(`payferry_chain_blocks_read_total{${CHAIN}}`, "chain")}`,
    }, { runbook: "chains#watcher-falls-behind" }),
    plot("Blocks that are not read again yet", "Each block is read a second time, second_look_blocks behind the head.", {
      "{{chain}}": `max by (chain) (payferry_chain_read_number{${CHAIN}}) - max by (chain) (payferry_chain_second_look_number{${CHAIN}})`,
    }),
    plot("Transfers to payments per minute", "Recorded transfers.", {
      "{{chain}}": `60 * ${rate(`payferry_chain_transfers_total{${CHAIN}}`, "chain")}`,
    }, { stack: true }),
    plot("Watched wallets", "Wallets of live payments and of payments that ended recently.", {
      "{{instance}}": "payferry_chain_wallets_watched",
    }),

    row("Errors and endpoints"),
    plot("Chain cannot be read", "1 while a chain cannot be read, by reason. Empty if all can be read.", {
      "{{chain}}: {{kind}}": `max by (chain, kind) (payferry_chain_trouble{${CHAIN}}) > 0`,
    }, { points: true, max: 1, runbook: "chains#chain-is-degraded", none: "All chains can be read" }),
    plot("Failed polls per minute", "By reason. Empty if none failed.", {
      "{{chain}}: {{kind}}": `60 * ${rate(`payferry_chain_looks_failed_total{${CHAIN}}`, "chain, kind")} > 0`,
    }, { points: true, runbook: "chains#chain-is-degraded", none: "No poll failed" }),
    plot("Requests per second", "Exchanges with each endpoint. A batch is one.", {
      "{{chain}} {{endpoint}}": rate(`payferry_chain_requests_total{${CHAIN}}`, "chain, endpoint"),
    }, { unit: "reqps" }),
    plot("Failed requests per minute", "By kind of error. Empty if none failed.", {
      "{{chain}} {{endpoint}}: {{kind}}": `60 * ${rate(`payferry_chain_request_errors_total{${CHAIN}}`, "chain, endpoint, kind")} > 0`,
    }, { points: true, runbook: "chains#endpoint-is-unusable", none: "No request failed" }),
    plot("Time of a request, p99", "By endpoint.", {
      "{{chain}} {{endpoint}}": quantile(0.99, "payferry_chain_request_seconds", CHAIN, "chain, endpoint"),
    }, { unit: "s", runbook: "chains#endpoint-is-unusable" }),
    plot("Usable endpoints", "Endpoints that the nodes use, and endpoints that serve another chain.", {
      "{{chain}}, usable": `sum by (chain) (payferry_chain_endpoint_usable{${CHAIN}})`,
      "{{chain}}, wrong chain": `sum by (chain) (payferry_chain_endpoint_wrong_chain{${CHAIN}})`,
    }, { runbook: "chains#endpoint-serves-another-chain" }),

    row("Reorganisations and wrong logs"),
    plot("Reorganisations in an hour", "And own transactions whose block was orphaned.", {
      "{{chain}}, reorganisations": `sum by (chain) (increase(payferry_chain_reorgs_total{${CHAIN}}[1h]))`,
      "{{chain}}, own transactions": `sum by (chain) (increase(payferry_settler_taken_back_total{${CHAIN}}[1h]))`,
    }, { orange: 5, runbook: "chains#reorgs" }),
    plot("Depth of reorganisations, largest in an hour", "Blocks. Empty without a reorganisation.", {
      "{{chain}}": `histogram_quantile(1, sum by (chain, le) (increase(payferry_chain_reorg_depth_blocks_bucket{${CHAIN}}[1h])))`,
    }, { points: true, runbook: "chains#reorgs", none: "No reorganisation" }),
    plot("Wrong logs and disagreements in an hour", "Logs that endpoints omitted, repeated or invented, and transfers that were held.", {
      "{{chain}}, missed": `sum by (chain) (increase(payferry_chain_logs_missed_total{${CHAIN}}[1h]))`,
      "{{chain}}, left out": `sum by (chain) (increase(payferry_chain_logs_left_out_total{${CHAIN}}[1h]))`,
      "{{chain}}, repeated": `sum by (chain) (increase(payferry_chain_logs_repeated_total{${CHAIN}}[1h]))`,
      "{{chain}}, forged": `sum by (chain) (increase(payferry_chain_logs_forged_total{${CHAIN}}[1h]))`,
      "{{chain}}, held": `sum by (chain) (increase(payferry_chain_disagreements_total{${CHAIN}}[1h]))`,
    }, { red: 1, runbook: "chains#endpoint-returns-wrong-logs" }),

    row("Settler"),
    plot("Operations and transactions", "Operations that wait, transactions that are not mined, and transactions that are not final.", {
      "{{chain}}, waiting": `max by (chain) (payferry_settler_queued_operations{${CHAIN}})`,
      "{{chain}}, not mined": `max by (chain) (payferry_settler_unmined_transactions{${CHAIN}})`,
      "{{chain}}, not final": `max by (chain) (payferry_settler_open_transactions{${CHAIN}})`,
    }, { runbook: "settlement#operations-wait" }),
    plot("Transactions per minute", "Signed and sent, and mined.", {
      "{{chain}}, sent": `60 * ${rate(`payferry_settler_submitted_total{${CHAIN}}`, "chain")}`,
      "{{chain}}, mined": `60 * ${rate(`payferry_settler_mined_total{${CHAIN}}`, "chain")}`,
    }, { runbook: "settlement#operations-wait" }),
    plot("Replaced, reverted and failed in an hour", "Transactions signed again with higher fees, reverted transactions, failed operations.", {
      "{{chain}}, replaced": `sum by (chain) (increase(payferry_settler_replaced_total{${CHAIN}}[1h]))`,
      "{{chain}}, reverted": `sum by (chain) (increase(payferry_settler_reverted_total{${CHAIN}}[1h]))`,
      "{{chain}}, failed": `sum by (chain) (increase(payferry_settler_operations_failed_total{${CHAIN}}[1h]))`,
    }, { orange: 1, runbook: "settlement#settlement-failed" }),
  ],
};

const webhooks = {
  description: "Deliveries to the receivers of the PSPs.",
  variables: ["node"],
  panels: [
    row("Now"),
    stat("Delivered", "Share of the attempts that succeeded, in an hour.", {
      "": 'sum(increase(payferry_webhook_attempts_total{outcome="delivered"}[1h])) / sum(increase(payferry_webhook_attempts_total[1h]))',
    }, { unit: "percentunit", decimals: 1, none: "No attempts" }),
    stat("Oldest due", "Time for which a delivery has been due.", {
      "": "max(payferry_webhook_oldest_due_seconds)",
    }, { unit: "s", orange: 60, red: 300, runbook: "webhooks#deliveries-are-late" }),
    stat("Backlog", "Deliveries that wait for their first attempt or for a retry.", {
      "": "sum(payferry_webhook_backlog_deliveries)",
    }, { runbook: "webhooks#deliveries-are-late" }),
    stat("Breakers open", "Endpoints that receive only probes because they kept failing.", {
      "": "sum(payferry_webhook_breakers_open)",
    }, { orange: 1, runbook: "webhooks#deliveries-are-late" }),
    stat("Exhausted", "Deliveries of the last day of which all attempts failed.", {
      "": 'sum(increase(payferry_webhook_attempts_total{outcome="exhausted"}[1d]))',
    }, { red: 1, decimals: 0, runbook: "webhooks#deliveries-are-exhausted" }),
    stat("Attempts in progress", "Of all nodes.", { "": `sum(payferry_webhook_attempts_under_way{${NODE}})` }),
    stat("Attempts per second", "Of all nodes.", { "": rate(`payferry_webhook_attempts_total{${NODE}}`) }, { unit: "ops", decimals: 1 }),
    stat("Attempt, p99", "Time until the receiver answers.", {
      "": quantile(0.99, "payferry_webhook_attempt_seconds", NODE),
    }, { unit: "s", none: "No attempts" }),

    row("Deliveries"),
    plot("Attempts per second", "By the state of the delivery afterwards. A failed one is retried.", {
      "{{outcome}}": rate(`payferry_webhook_attempts_total{${NODE}}`, "outcome"),
    }, { unit: "ops", stack: true, runbook: "webhooks#deliveries-are-exhausted" }),
    plot("Backlog", "Deliveries that wait for their first attempt (queued) or for a retry (failed).", {
      "{{status}}": "sum by (status) (payferry_webhook_backlog_deliveries)",
    }, { stack: true, runbook: "webhooks#deliveries-are-late" }),
    plot("Oldest due", "Time for which a delivery has been due. Events of a PSP without a webhook URL wait, too.", {
      "oldest due": "max(payferry_webhook_oldest_due_seconds)",
    }, { unit: "s", red: 300, runbook: "webhooks#deliveries-are-late" }),
    plot("Delivery time", "From the start of an attempt to the answer of the receiver.", {
      p50: quantile(0.5, "payferry_webhook_attempt_seconds", NODE),
      p90: quantile(0.9, "payferry_webhook_attempt_seconds", NODE),
      p99: quantile(0.99, "payferry_webhook_attempt_seconds", NODE),
    }, { unit: "s" }),
    plot("Breakers and attempts in progress", "An open breaker lets only probes through.", {
      "breakers open": "sum(payferry_webhook_breakers_open)",
      "attempts, {{instance}}": `payferry_webhook_attempts_under_way{${NODE}}`,
    }, { runbook: "webhooks#deliveries-are-late" }),
    plot("Needs attention", "PSPs with failing receivers, late events or exhausted deliveries. Empty if there are none.", {
      "{{kind}}": `${attention(WEBHOOKS_WAIT)} > 0`,
    }, { stack: true, link: "${console}/ops/view/stuck?kind=${__field.labels.kind}", none: "Nothing needs attention" }),

    row("Sender"),
    plot("Messages per second", "Messages that the webhook actors took.", {
      "{{kind}}": rate(`payferry_actor_messages_total{kind=~"webhook_.+|announcer",${NODE}}`, "kind"),
    }, { unit: "ops" }),
    plot("Mailbox wait, p99", "Time that a message to them waits.", {
      "{{kind}}": quantile(0.99, "payferry_actor_mailbox_wait_seconds", `kind=~"webhook_.+|announcer",${NODE}`, "kind"),
    }, { unit: "s", red: 1, runbook: "payments#actors-are-slow" }),
    plot("Old rows deleted in a day", "Events, deliveries and attempts. Undelivered events are never deleted.", {
      "{{table}}": "sum by (table) (increase(payferry_pruned_rows_total[1d]))",
    }, { runbook: "journal#events-are-not-pruned" }),
  ],
};

const nodes = {
  description: "Heartbeats, leases and clocks of the nodes, admission of new payments, HTTP, and the processes.",
  variables: ["node"],
  panels: [
    row("Now"),
    stat("Nodes", "Nodes that share the database and are not gone.", { "": "max(payferry_nodes)" }, { green: 1 }),
    stat("Oldest heartbeat", "After 6 s the other nodes declare a node gone.", {
      "": `max(payferry_node_heartbeat_age_seconds{${NODE}})`,
    }, { unit: "s", red: 3, runbook: "process#node-has-no-heartbeats" }),
    stat("Clock", "Largest difference from the clock of the database.", {
      "": `max(abs(payferry_node_clock_offset_seconds{${NODE}}))`,
    }, { unit: "s", red: 1, runbook: "process#clock-is-wrong" }),
    stat("Takeovers", "Leases that moved, in an hour.", { "": "sum(increase(payferry_lease_takeovers_total[1h]))" }, { decimals: 0 }),
    stat("New payments refused", "Because of overload, in an hour.", {
      "": `sum(increase(payferry_admission_refused_total{${NODE}}[1h]))`,
    }, { red: 1, decimals: 0, runbook: "process#new-payments-are-refused" }),
    stat("Server errors", "Share of the answers with a status 5xx.", {
      "": `(${rate(`payferry_http_requests_total{status=~"5..",${NODE}}`)} or vector(0)) / ${rate(`payferry_http_requests_total{${NODE}}`)}`,
    }, { unit: "percentunit", decimals: 2, red: 0.01, runbook: "process#server-errors" }),
    stat("Answer, p99", "Time from the request to the head of the response.", {
      "": quantile(0.99, "payferry_http_request_duration_seconds", NODE),
    }, { unit: "s" }),
    stat("Shortest uptime", "Of all nodes.", { "": `min(payferry_uptime_seconds{${NODE}})` }, { unit: "s" }),

    row("Nodes and leases"),
    plot("Age of the last heartbeat", "Above 3 s, the node is cut off from the database or paused.", {
      "{{instance}}": `payferry_node_heartbeat_age_seconds{${NODE}}`,
    }, { unit: "s", red: 3, runbook: "process#node-has-no-heartbeats" }),
    plot("Leases of each node", "256 shards, 64 buckets, one per chain, and the jobs. Of a service that runs alone: 0.", {
      "{{instance}}": `sum by (instance) (payferry_node_leases{${NODE}})`,
    }, { stack: true, runbook: "process#node-has-no-heartbeats" }),
    plot("Leases by kind", "Their sum over all nodes changes only while leases move.", {
      "{{kind}}": "sum by (kind) (payferry_node_leases)",
    }, { runbook: "process#node-has-no-heartbeats" }),
    plot("Takeovers and lost fences in an hour", "Leases that a node got, and writes that were refused because another node holds the lease.", {
      "{{instance}}, {{cause}}": `sum by (instance, cause) (increase(payferry_lease_takeovers_total{${NODE}}[1h]))`,
      "{{instance}}, fence lost": `increase(payferry_fence_lost_total{${NODE}}[1h])`,
    }, { runbook: "process#node-has-no-heartbeats" }),
    plot("Clock minus that of the database", "Above 5 s, the node takes no requests.", {
      "{{instance}}": `payferry_node_clock_offset_seconds{${NODE}}`,
    }, { unit: "s", signed: true, runbook: "process#clock-is-wrong" }),
    plot("Work for other nodes per second", "Commands on payments of other nodes, and notifications to them.", {
      "commands, {{kind}}": rate(`payferry_guest_commands_total{${NODE}}`, "kind"),
      "notifications, {{topic}}": rate(`payferry_nudges_total{${NODE}}`, "topic"),
    }, { unit: "ops" }),

    row("Admission of new payments"),
    plot("New payments per second", "Initiated, refused, and what the processors have time for.", {
      initiated: rate(`payferry_payments_initiated_total{${NODE}}`),
      refused: rate(`payferry_admission_refused_total{${NODE}}`),
      budget: `sum(payferry_admission_budget{${NODE}} >= 0)`,
    }, { unit: "ops", runbook: "process#new-payments-are-refused", none: "No budget yet" }),
    plot("Delay of the queues", "Time that messages waited, which closes the admission.", {
      "{{instance}}: {{kind}}": `payferry_admission_delay_seconds{${NODE}}`,
    }, { unit: "s", runbook: "process#new-payments-are-refused" }),
    plot("Limit of new payments per second", "-1 without a limit, 0 while no payment is admitted.", {
      "{{instance}}": `payferry_admission_limit{${NODE}}`,
    }, { signed: true, runbook: "process#new-payments-are-refused" }),

    row("HTTP"),
    plot("Requests per second by status", "Of both listeners.", {
      "{{status}}": rate(`payferry_http_requests_total{${NODE}}`, "status"),
    }, { unit: "reqps", stack: true, runbook: "process#server-errors" }),
    plot("Requests per second by route", "The ten routes with the most requests.", {
      "{{method}} {{route}}": `topk(10, ${rate(`payferry_http_requests_total{${NODE}}`, "method, route")})`,
    }, { unit: "reqps" }),
    plot("Server errors per minute by route", "503 means overloaded or unavailable; 500 is a defect. Empty if there are none.", {
      "{{status}} {{method}} {{route}}": `60 * ${rate(`payferry_http_requests_total{status=~"5..",${NODE}}`, "status, method, route")} > 0`,
    }, { points: true, runbook: "process#server-errors", none: "No server error" }),
    plot("Time of an answer", "From the head of the request to the head of the response.", {
      p50: quantile(0.5, "payferry_http_request_duration_seconds", NODE),
      p90: quantile(0.9, "payferry_http_request_duration_seconds", NODE),
      p99: quantile(0.99, "payferry_http_request_duration_seconds", NODE),
    }, { unit: "s" }),
    plot("Time of an answer by route, p99", "The ten slowest routes.", {
      "{{method}} {{route}}": `topk(10, ${quantile(0.99, "payferry_http_request_duration_seconds", NODE, "method, route")})`,
    }, { unit: "s" }),
    plot("Streams and closed connections", "Above 8,192 streams, further pages are refreshed at intervals.", {
      "streams, {{instance}}": `payferry_http_streams_open{${NODE}}`,
      "closed in an hour, {{reason}}": `sum by (reason) (increase(payferry_http_connections_closed_total{${NODE}}[1h]))`,
    }, { red: 7372, runbook: "process#too-many-streams" }),

    row("Processes"),
    plot("Processor", "Cores that each node uses.", {
      "{{instance}}": `rate(process_cpu_seconds_total{job="payferry",${NODE}}[$__rate_interval])`,
    }, { runbook: "process#new-payments-are-refused" }),
    plot("Memory", "Resident memory of each node, and the memory that it may use.", {
      "{{instance}}": `process_resident_memory_bytes{job="payferry",${NODE}}`,
      "{{instance}}, limit": `payferry_memory_limit_bytes{${NODE}}`,
    }, { unit: "bytes", runbook: "process#files-or-memory-run-out" }),
    plot("Open files", "Share of the files that each node may open.", {
      "{{instance}}": `process_open_fds{job="payferry",${NODE}} / process_max_fds{job="payferry",${NODE}}`,
    }, { unit: "percentunit", red: 0.8, runbook: "process#files-or-memory-run-out" }),
    plot("Threads", "Of each node.", { "{{instance}}": `process_threads{job="payferry",${NODE}}` }),
    plot("Uptime", "Falls to 0 when a node starts.", { "{{instance}}": `payferry_uptime_seconds{${NODE}}` }, { unit: "s" }),
    table("Versions and unsafe settings", "The version of each node, and the unsafe settings that it uses.", {
      version: `payferry_build_info{${NODE}}`,
      setting: `payferry_unsafe_setting{${NODE}}`,
    }, { none: "No unsafe setting", hidden: ["Time", "Value", "Value #A", "Value #B", "__name__", "job"] }),
  ],
};

const VARIABLES = {
  datasource: { type: "datasource", label: "Prometheus", query: "prometheus", refresh: 1 },
  console: {
    type: "textbox", label: "Operator page", query: "http://127.0.0.1:8081",
    description: "Address of an operator listener, without a path, for the links to lists and runbooks.",
  },
  node: { type: "query", label: "Node", ...values("payferry_build_info", "instance") },
  chain: { type: "query", label: "Chain", ...values("payferry_chain_head_number", "chain") },
};

/** A variable with the values of a label. */
function values(metric, label) {
  const query = { qryType: 1, query: `label_values(${metric},${label})`, refId: "values" };
  return {
    datasource: DATASOURCE, query, refresh: 2, sort: 1, multi: true, includeAll: true, allValue: ".*",
    current: { text: ["All"], value: ["$__all"] },
  };
}

function thresholds({ orange, red, green }) {
  const steps = green === undefined ? [["green", null], ["orange", orange], ["red", red]] : [["red", null], ["orange", orange], ["green", green]];
  return steps.filter(([, value]) => value !== undefined).map(([color, value]) => ({ color, value }));
}

/** A panel of Grafana at a position of the grid. */
function grafanaPanel(panel, id, gridPos) {
  const { type, title, description, queries, unit = "short", decimals, max, runbook, link, none } = panel;
  if (type === "row") return { id, type, title, collapsed: false, gridPos, panels: [] };
  const isTable = type === "table";
  const targets = Object.entries(queries).map(([legend, expr], index) => ({
    refId: String.fromCharCode(65 + index), editorMode: "code", expr,
    ...(isTable ? { format: "table", instant: true, range: false } : { legendFormat: legend || "__auto", range: true }),
  }));
  const steps = thresholds(panel);
  const hasThresholds = steps.length > 1;
  const defaults = {
    unit: isTable ? undefined : unit, decimals, max, min: type === "timeseries" && !panel.signed ? 0 : undefined, noValue: none,
    color: { mode: type === "stat" ? "thresholds" : "palette-classic" },
    thresholds: { mode: "absolute", steps },
    links: link && [{ title: "List", url: link, targetBlank: true }],
    custom: type === "timeseries" ? look(panel, hasThresholds) : {},
  };
  const options = {
    stat: {
      reduceOptions: { calcs: ["lastNotNull"], fields: "", values: false }, colorMode: "value", graphMode: "area",
      justifyMode: "auto", orientation: "auto", textMode: "value", wideLayout: true, showPercentChange: false,
      percentChangeColorMode: "standard",
    },
    timeseries: {
      legend: { showLegend: true, displayMode: "list", placement: "bottom", calcs: [] },
      tooltip: { mode: "multi", sort: "desc" },
    },
    table: { frameIndex: 0, showHeader: true, cellHeight: "sm" },
  };
  return {
    id, type, title, description, gridPos, datasource: DATASOURCE, targets,
    links: runbook && [dashboardLink({ title: "Runbook", url: `\${console}/ops/view/runbooks/${runbook}`, targetBlank: true })],
    transformations: panel.hidden && [
      { id: "merge", options: {} },
      { id: "organize", options: { excludeByName: Object.fromEntries(panel.hidden.map((name) => [name, true])) } },
    ],
    fieldConfig: { defaults, overrides: [] },
    options: options[type],
  };
}

/** How a plot draws its series. */
const look = ({ stack, points }, hasThresholds) => ({
  drawStyle: points ? "points" : "line", lineWidth: 1, pointSize: points ? 6 : 4, showPoints: points ? "always" : "never",
  fillOpacity: stack ? 30 : 0, stacking: { mode: stack ? "normal" : "none", group: "A" },
  thresholdsStyle: { mode: hasThresholds ? "line" : "off" },
});

const dashboardLink = (link) => ({
  type: "link", title: "", tooltip: "", icon: "external link", tags: [], asDropdown: false, targetBlank: false,
  includeVars: false, keepTime: false, ...link,
});

/** Places panels from left to right, and begins a line when they do not fit or a row begins. */
function placed(panels) {
  let [x, y, lineHeight] = [0, 0, 0];
  return panels.map((panel, index) => {
    const { width = COLUMNS, height = 1 } = panel;
    if (x + width > COLUMNS) [x, y, lineHeight] = [0, y + lineHeight, 0];
    const at = { x, y, w: width, h: height };
    [x, lineHeight] = [x + width, Math.max(lineHeight, height)];
    return grafanaPanel(panel, index + 1, at);
  });
}

function dashboard(name, { description, variables, panels }) {
  const list = ["datasource", "console", ...variables].map((variable) => ({ name: variable, ...VARIABLES[variable] }));
  const alerts = {
    name: "Alerts", enable: true, iconColor: "red", datasource: DATASOURCE, titleFormat: "{{alertname}}",
    expr: 'sum by (alertname, severity, chain, kind) (ALERTS{alertname=~"Payferry.+",alertstate="firing"})',
    textFormat: "{{severity}} {{chain}} {{kind}}", step: "30s",
  };
  return {
    uid: `payferry-${name}`, title: `Payferry: ${name}`, description, tags: ["payferry"], schemaVersion: SCHEMA_VERSION,
    editable: true, graphTooltip: 1, time: { from: "now-1h", to: "now" }, refresh: "30s", timezone: "browser",
    links: [
      dashboardLink({ type: "dashboards", title: "Payferry", tags: ["payferry"], icon: "dashboard", includeVars: true, keepTime: true }),
      dashboardLink({ title: "Operator page", url: "${console}/ops", targetBlank: true }),
      dashboardLink({ title: "Runbooks", url: "${console}/ops/view/runbooks", targetBlank: true }),
    ],
    annotations: { list: [alerts] },
    templating: { list },
    panels: placed(panels),
  };
}

/** JSON that is short and still has short lines. Without an indent, it is one line. */
function json(value, indent) {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const isArray = Array.isArray(value);
  const [open, close] = isArray ? "[]" : "{}";
  const entries = Object.entries(value).filter(([, of]) => of !== undefined);
  const parts = (inner) => entries.map(([key, of]) => (isArray ? "" : `${JSON.stringify(key)}: `) + json(of, inner));
  const line = `${open}${parts().join(", ")}${close}`;
  const staysInOne = indent === undefined || indent.length + line.length <= LINE_MAX || (!isArray && indent.length > PANEL_INDENT);
  return staysInOne ? line : `${open}\n  ${indent}${parts(`${indent}  `).join(`,\n  ${indent}`)}\n${indent}${close}`;
}

const isCheck = process.argv.includes("--check");
for (const [name, definition] of Object.entries({ supervision, money, chains, webhooks, nodes })) {
  const file = new URL(`grafana/${name}.json`, import.meta.url);
  const text = `${json(dashboard(name, definition), "")}\n`;
  if (!isCheck) {
    writeFileSync(file, text);
  } else if (readFileSync(file, "utf8") !== text) {
    console.error(`ops/grafana/${name}.json differs from ops/dashboards.mjs: run node ops/dashboards.mjs`);
    process.exitCode = 1;
  }
}
