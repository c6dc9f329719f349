//! All words of the page in one place, so that they can be translated. Names in braces are replaced by values.
//!
//! Not here: the message that the account signs (`message`), which is the same in every language.

/// The words of the page in one language.
pub(super) struct Texts {
    /// Language tag.
    pub language: &'static str,
    pub headline: &'static str,
    pub back: &'static str,
    pub test: (&'static str, &'static str),
    pub explanation: &'static str,
    pub nothing: &'static str,
    pub settling: &'static str,
    pub not_offered: &'static str,
    pub available: &'static str,
    /// One sum of money, and why it can be sent back.
    pub sum: &'static str,
    pub late: &'static str,
    pub excess: &'static str,
    pub wrong_token: &'static str,
    pub wrong_chain: &'static str,
    pub unknown_token: &'static str,
    pub sign_headline: &'static str,
    pub sign_at_once: &'static str,
    pub sign_approve: &'static str,
    pub sign_button: &'static str,
    pub sign_no_wallet: &'static str,
    pub signed_message: &'static str,
    pub form_headline: &'static str,
    pub form_explanation: &'static str,
    pub form_money: &'static str,
    pub form_address: &'static str,
    pub form_address_hint: &'static str,
    pub form_note: &'static str,
    pub form_note_hint: &'static str,
    pub form_button: &'static str,
    pub requests: &'static str,
    pub requested: &'static str,
    pub approved: &'static str,
    pub held: &'static str,
    pub sent: &'static str,
    pub failed: &'static str,
    pub declined: &'static str,
    pub done: &'static str,
    pub merchant: &'static str,
    pub sender_of_link: &'static str,
    /// Words of the script, by name.
    pub script: &'static [(&'static str, &'static str)],
    /// Explanations of errors, by code. The last one is for every other code.
    pub errors: &'static [(&'static str, &'static str)],
}

impl Texts {
    /// The explanation of an error.
    pub(super) fn error(&self, code: &str) -> &'static str {
        let known = self.errors.iter().find(|(known, _)| *known == code).or(self.errors.last());
        known.map_or("", |(_, words)| words)
    }
}

/// Replaces each name in braces.
pub(super) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// English.
pub(super) static EN: Texts = Texts {
    language: "en",
    headline: "Get money back",
    back: "Back to the payment",
    test: ("TEST", "Do not send real money."),
    explanation: "This money arrived late, in another token, on another chain, or is more than the payment needed. It is \
                  held safely, and you can have it sent back.",
    nothing: "There is no money to send back at the moment.",
    settling: "The payment is being completed. Come back in a few minutes to have the rest sent back.",
    not_offered: "This page cannot send money back for this payment. Contact {contact}.",
    available: "Money that can be sent back",
    sum: "{amount} {token} on {chain}",
    late: "arrived after the time to pay was over",
    excess: "more than the payment needed",
    wrong_token: "another token than the one asked for",
    wrong_chain: "another chain than the one asked for",
    unknown_token: "of an unknown token",
    sign_headline: "You paid from your own wallet",
    sign_at_once: "Connect the account that sent the money and sign one message. The money goes back to that account. \
                   Signing costs nothing.",
    sign_approve: "Connect the account that sent the money and sign one message. {contact} decides, and the money goes back to \
                   that account. Signing costs nothing.",
    sign_button: "Sign with the wallet in this browser",
    sign_no_wallet: "To sign, open this page in the browser with your wallet.",
    signed_message: "The message that you signed",
    form_headline: "You paid from an exchange",
    form_explanation: "Enter an address of yours for the same token on the same chain, such as the deposit address of your \
                       exchange. {contact} checks the request and decides.",
    form_money: "Money",
    form_address: "Your address",
    form_address_hint: "0x and 40 characters. Money that is sent to a wrong address is lost.",
    form_note: "Note to {contact} (optional)",
    form_note_hint: "No names, no account numbers, no other personal data.",
    form_button: "Ask for the refund",
    requests: "Requests",
    requested: "{contact} has been asked and decides.",
    approved: "It is on its way.",
    held: "It is sent after a check.",
    sent: "It was sent.",
    failed: "It could not be sent. Contact {contact}.",
    declined: "{contact} declined the request.",
    done: "Your request was received.",
    merchant: "The merchant",
    sender_of_link: "The sender of this link",
    script: &[
        ("connect", "Choose the account that sent the money in your wallet."),
        ("stranger", "This account sent none of the money that can be sent back. Choose the account that sent it."),
        ("sign", "Sign the message in your wallet. It costs nothing."),
        ("declined", "You declined in your wallet; nothing was requested."),
        ("failed", "Your wallet reported an error. Try again, or use another wallet with the same account."),
        ("sending", "Sending your request…"),
        ("offline", "The service did not answer. Reload the page to see if your request was received."),
    ],
    errors: &[
        ("payer_refunds_off", "This page cannot send money back for this payment."),
        ("refund_not_sender", "This account sent none of the money that can be sent back."),
        ("nothing_to_refund", "This money is no longer here. Reload the page."),
        ("refund_too_large", "The amount has changed. Reload the page."),
        ("payment_pending", "The payment is not decided yet. Try again later."),
        ("settlement_in_progress", "The payment is being completed. Try again in a few minutes."),
        ("refund_requests_open", "Too many requests wait for a decision. Try again later."),
        ("refund_requests_exhausted", "No more requests are accepted for this payment."),
        ("above_send_limit", "The amount is too large for this page."),
        ("psp_paused", "No money can be sent back at the moment. Try again later."),
        ("refund_signature", "The signature is not one of the account that sent the money."),
        ("refund_message_expired", "The message is too old. Sign a new one."),
        ("rate_limited", "Too many requests. Wait a minute, then try again."),
        ("chain_unavailable", "The chain does not answer at the moment. Try again."),
        ("validation_failed", "The address or the note cannot be used. Check them."),
        ("", "The request cannot be taken at the moment. Try again later."),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_words_and_values_are_filled_in() {
        assert_eq!(EN.error("refund_not_sender"), EN.errors[1].1);
        assert_eq!(EN.error("unheard_of"), "The request cannot be taken at the moment. Try again later.");
        assert_eq!(fill(EN.sum, &[("amount", "2.50"), ("token", "USDC"), ("chain", "Base")]), "2.50 USDC on Base");
    }
}
