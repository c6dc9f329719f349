//! All words of the page in every language. Names in braces are replaced by values.
//!
//! A language is one file with one value of [`Texts`], so that the compiler refuses a language that lacks a text. Not here: the
//! choice of the language (`pay::texts`), and the message that the account signs (`message`), which is the same in every language.

mod de;
mod en;
mod es;
mod fr;
mod ja;
mod pt;

use payferry_domain::payment::Payment;

use crate::http::pages::pay::Language;

/// The words of the page in one language.
pub(super) struct Texts {
    pub headline: &'static str,
    pub back: &'static str,
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
    /// The party that decides, at the beginning of a sentence: the merchant, or the sender of the link.
    pub contact: [&'static str; 2],
    /// The sentence that refers the payer to that party.
    pub ask: [&'static str; 2],
    /// Words of the script, by name.
    pub script: &'static [(&'static str, &'static str)],
    /// Explanations of errors, by code. The last one is for every other code.
    pub errors: &'static [(&'static str, &'static str)],
}

impl Texts {
    /// The words in this language.
    pub(super) const fn of(language: Language) -> &'static Self {
        match language {
            Language::English => &en::TEXTS,
            Language::German => &de::TEXTS,
            Language::Spanish => &es::TEXTS,
            Language::French => &fr::TEXTS,
            Language::Portuguese => &pt::TEXTS,
            Language::Japanese => &ja::TEXTS,
        }
    }

    /// A text that names the party that decides about a payment. A transfer to a customer has no merchant.
    pub(super) fn about(&self, payment: &Payment, text: &str) -> String {
        let party = usize::from(!payment.terms.purpose.is_pay_in());
        fill(text, &[("contact", self.contact[party]), ("ask", self.ask[party])])
    }

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every text by its name, and the names in braces of each.
    fn all(texts: &Texts) -> Vec<(String, &'static str)> {
        let Texts { headline, back, explanation, nothing, settling, not_offered, available, sum, late, excess, .. } =
            *texts;
        let Texts {
            wrong_token,
            wrong_chain,
            unknown_token,
            sign_headline,
            sign_at_once,
            sign_approve,
            sign_button,
            ..
        } = *texts;
        let Texts { sign_no_wallet, signed_message, form_headline, form_explanation, form_money, form_address, .. } =
            *texts;
        let Texts {
            form_address_hint,
            form_note,
            form_note_hint,
            form_button,
            requests,
            requested,
            approved,
            held,
            ..
        } = *texts;
        let Texts { sent, failed, declined, done, contact, ask, script, errors, .. } = *texts;
        let plain = [
            headline,
            back,
            explanation,
            nothing,
            settling,
            not_offered,
            available,
            sum,
            late,
            excess,
            wrong_token,
            wrong_chain,
            unknown_token,
            sign_headline,
            sign_at_once,
            sign_approve,
            sign_button,
            sign_no_wallet,
            signed_message,
            form_headline,
            form_explanation,
            form_money,
            form_address,
            form_address_hint,
            form_note,
            form_note_hint,
            form_button,
            requests,
            requested,
            approved,
            held,
            sent,
            failed,
            declined,
            done,
            contact[0],
            contact[1],
            ask[0],
            ask[1],
        ];
        let plain = plain.into_iter().enumerate().map(|(at, text)| (at.to_string(), text));
        let named = |kind: &'static str| move |(name, text): &(&str, &'static str)| (format!("{kind} {name}"), *text);
        plain.chain(script.iter().map(named("script"))).chain(errors.iter().map(named("error"))).collect()
    }

    fn names(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect()
    }

    #[test]
    fn every_language_has_the_same_texts_with_the_same_values() {
        let english = all(Texts::of(Language::English));
        for language in Language::ALL.into_iter().filter(|language| *language != Language::English) {
            let texts = all(Texts::of(language));
            assert_eq!(texts.len(), english.len(), "{language}");
            for ((name, text), (same, words)) in texts.iter().zip(&english) {
                assert_eq!((name, names(text)), (same, names(words)), "{language}: {text}");
                assert!(!text.is_empty() && text != words, "{language} lacks {words}");
            }
        }
    }

    #[test]
    fn errors_have_words_and_values_are_filled_in() {
        let texts = Texts::of(Language::English);
        assert_eq!(texts.error("refund_not_sender"), texts.errors[1].1);
        assert_eq!(texts.error("unheard_of"), "The request cannot be taken at the moment. Try again later.");
        assert_eq!(fill(texts.sum, &[("amount", "2.50"), ("token", "USDC"), ("chain", "Base")]), "2.50 USDC on Base");
    }
}
