//! English.

use super::{Contact, ScriptTexts, Texts};

/// The party in the middle of a sentence.
fn them(contact: Contact) -> &'static str {
    contact.pick("the merchant", "the sender of this link")
}

/// The party at the beginning of a sentence.
fn they(contact: Contact) -> &'static str {
    contact.pick("The merchant", "The sender of this link")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "Waiting for your payment",
        "Send exactly this amount to the address shown here. You will see it arrive on this page.",
    ),
    choose: (
        "Choose a chain",
        "You can pay on any of these chains. Choose the one on which you have the money: the choice cannot be changed.",
    ),
    part_seen: "Part of the payment seen",
    part_seen_text: |seen, due, missing| {
        format!(
            "{seen} of {due} was seen and does not count yet. {missing} is missing: send it to the same address in time."
        )
    },
    seen: "Payment seen",
    seen_text: |amount| {
        format!(
            "Your transfer of {amount} has arrived and is being confirmed by the chain. There is nothing more to do."
        )
    },
    rest_seen_text: "The rest of your payment has arrived and is being confirmed by the chain. There is nothing more to do.",
    checked: (
        "Payment being checked",
        "Your transfer has arrived and is being checked, which can take a while. There is nothing for you to do; do not \
         pay again.",
    ),
    chain_waits: (
        "Waiting for the chain",
        "Your transfer was seen, but the chain has dropped its block. It usually reappears within minutes; do not pay \
         again yet.",
    ),
    time_up: (
        "Time is up",
        "The time to pay is over. The service is still checking for transfers that were sent in time; do not send \
         anything now.",
    ),
    signed: "Payment signed",
    signed_text: |amount| format!("Your signed payment of {amount} is being collected. There is nothing more to do."),
    signed_checked_text: "Your signed payment is being checked, which can take a while. There is nothing for you to do; do \
                          not pay again.",
    confirmed: ("Payment confirmed", "Thank you. Your payment is final; there is nothing more to do."),
    complete: "Payment complete",
    complete_text: |contact| {
        let recipient = contact.pick("the merchant", "the recipient");
        format!("Thank you. Your payment has arrived and was passed on to {recipient}.")
    },
    incomplete: "Payment incomplete",
    incomplete_text: |received, due, missing| {
        format!("{received} of {due} has arrived. {missing} is missing: send it to the same address in time.")
    },
    underpaid_text: |received, due, contact| {
        format!(
            "{received} of {due} arrived in time. {} has been notified and will accept it or send it back. Contact {}; do \
             not send anything more.",
            they(contact),
            them(contact)
        )
    },
    late: "Payment arrived late",
    late_text: |contact| {
        format!(
            "Money arrived after the time to pay was over. {} has been notified and will accept it or send it back. \
             Contact {}; do not pay again.",
            they(contact),
            them(contact)
        )
    },
    overpaid: "More than the amount arrived",
    overpaid_text: |received, due, contact| {
        format!(
            "{received} arrived instead of {due}. {} has been notified and will accept it or send money back. There is \
             nothing for you to pay.",
            they(contact)
        )
    },
    mismatched: "Payment does not match",
    mismatched_text: |contact| {
        format!(
            "The received money does not match the request. {} has been notified. Contact {}; do not send anything more.",
            they(contact),
            them(contact)
        )
    },
    expired: "Payment expired",
    expired_text: |contact| {
        let them = them(contact);
        format!(
            "The time to pay is over. Do not send anything; ask {them} for a new link. If you have just sent money, \
             contact {them}: it is not lost."
        )
    },
    cancelled: "Payment cancelled",
    cancelled_text: |contact| format!("{} cancelled this payment. Do not send anything.", they(contact)),
    blocked_text: |contact| {
        format!(
            "The received money is being checked, and this payment cannot be completed. Do not send anything more; \
             contact {}.",
            them(contact)
        )
    },
    sent_back: "Payment sent back",
    sent_back_text: |contact| {
        let them = them(contact);
        format!(
            "This payment could not be completed, and {them} will send it back. Contact {them} before you pay again."
        )
    },
    failed: "Payment failed",
    failed_text: |contact| format!("Do not send anything; contact {}.", them(contact)),

    signature_used: "Your last signature was not used: it was cancelled, or used elsewhere. No money was taken; you can pay \
                     again.",
    signature_refused: "Your last signature was not used: this account cannot be used. No money was taken; you can pay \
                        again.",
    signature_expired: "Your last signature was not used: it expired. No money was taken; you can pay again.",
    wrong_token: |token, contact| {
        format!(
            "A token arrived that is not the {token} asked for, so it does not count for this payment. Contact {} to have \
             it sent back.",
            them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "Money arrived on another chain than {chain}, so it does not count for this payment. Contact {} to have it \
             sent back.",
            them(contact)
        )
    },
    under_check: "A received transfer is being checked and does not count until then.",
    under_check_contact: |contact| {
        format!("A received transfer is being checked and does not count until then. Contact {}.", them(contact))
    },
    excess: |amount, contact| {
        format!(
            "{amount} arrived after the payment was complete. {} has been notified and can send it back.",
            they(contact)
        )
    },
    refund_held: |amount| format!("{amount} is sent back after a check."),
    refund_going: |amount| format!("{amount} is on its way back."),
    refund_sent: |amount| format!("{amount} was sent back."),

    test: ("TEST", "Do not send real money."),
    on_chain: |chain| format!("on {chain}"),
    time_left: ("", " left"),
    pay_until: ("Pay until ", ""),
    progress: "Progress",
    steps: ["Waiting for payment", "Payment seen", "Confirmed", "Complete"],
    step_done: "(done)",
    confirmations: |have, required| format!("{have} of {required} confirmations"),
    waits_for_finality: "waiting for finality on the chain",
    reload: "Reload to see the latest.",
    get_money_back: "Get money back",
    return_to: |name| format!("Return to {name}"),

    choose_chain: |chain| format!("Pay on {chain}"),
    scan: "Scan with a wallet app",
    code_choice: "Content of the QR code",
    code_request: "Payment request",
    code_address: "Address only",
    code_request_label: |amount, chain, address| format!("QR code: send {amount} on {chain} to {address}"),
    code_address_label: |address| format!("QR code: {address}"),
    code_address_hint: |amount, chain| format!("In the app, choose {chain} and enter exactly {amount}."),
    to_send: "What to send",
    send_exactly: "Send exactly",
    on_the_chain: "On the chain",
    to_this_address: "To this address",
    token_contract: |token| format!("{token} token contract"),
    copy: "Copy",
    copy_amount: "Copy the amount",
    copy_address: "Copy the address",
    copy_contract: "Copy the contract",
    wallets: "Wallets in this browser",
    open_in_app: "Open in a wallet app",
    only: |token, chain| format!("Send {token} on {chain} only."),
    only_why: |contact| {
        format!(
            "Another token or another chain does not count for this payment; to get it back, contact {}.",
            them(contact)
        )
    },
    what_you_sign: "What you sign",
    sign_text: |amount| {
        let before = format!(
            "One message that lets the payment contract take {amount} from your account for this payment, and nothing \
             else, until "
        );
        (before, ". You need no coin for gas.")
    },
    sign_message: "Message",
    sign_to: "To",
    sign_value: "Value (base units)",
    sign_nonce: "Nonce",

    arrived: "What has arrived",
    counted: |received, due| format!("Counted for this payment: {received} of {due}"),
    unknown_token: |amount| format!("{amount} of an unknown token"),
    transfer_orphaned: "dropped by the chain",
    transfer_stray: "does not count for this payment",
    transfer_confirmed: "confirmed",
    transfer_seen: "being confirmed",
    transfer_checked: "being checked",
    transaction: "Transaction",
    settlement: "Passed on:",

    not_found: ("No such payment", "There is no payment for this link. Ask its sender for a new one."),
    too_many: ("Too many requests", "Wait a minute, then reload."),
    unavailable: ("Not available", "The page cannot be shown at the moment. Reload in a little while."),

    script: ScriptTexts {
        live: "This page updates by itself.",
        connecting: "Connecting…",
        copied: "Copied",
        pay: "Pay with the wallet in this browser",
        pay_with: |wallet| format!("Pay with {wallet}"),
        sign: "Pay with the wallet in this browser, without gas",
        sign_with: |wallet| format!("Pay with {wallet}, without gas"),
        declined: "You declined in your wallet; nothing was sent.",
        unknown_chain: |chain| format!("Your wallet does not know {chain}. Add the chain there, then try again."),
        sign_now: "Sign the payment in your wallet. It costs no gas.",
        sending: "Sending the signed payment…",
        collected: "Your signed payment is being collected. There is nothing more to do.",
        refused: "The payment was not accepted. No money was taken.",
        too_little: "This account has too little money for the payment. No money was taken.",
        cannot_sign: "Your wallet could not sign. Send the amount instead.",
        confirm_now: "Confirm the payment in your wallet.",
        sent: "Your wallet has sent the payment. It appears here once it is in the chain; do not send it twice.",
        wallet_failed: "Your wallet reported an error. Scan the code, or copy the address.",
    },
};
