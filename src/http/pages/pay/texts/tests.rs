//! Choice of the language, and checks of the texts that the compiler cannot make.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use axum::http::HeaderValue;

use super::*;

/// Values that no text contains by itself.
const VALUES: [&str; 3] = ["<one>", "<two>", "<three>"];
/// Texts that are the same in English and in some language.
const SAME: [&str; 6] = ["TEST", "Message", "Transaction", "Nonce", "QR code: <one>", "Token-"];

fn language(lists: &[&str]) -> Language {
    let mut headers = HeaderMap::new();
    for list in lists {
        headers.append(ACCEPT_LANGUAGE, HeaderValue::from_bytes(list.as_bytes()).unwrap());
    }
    Language::of(&headers)
}

#[test]
fn the_preferred_language_wins_whatever_its_region() {
    use Language::{English, French, German, Japanese, Portuguese, Spanish};
    for (list, expected) in [
        ("de", German),
        ("de-AT, en;q=0.8", German),
        ("pt-BR,pt;q=0.9,en-US;q=0.8", Portuguese),
        ("ES-419", Spanish),
        ("en;q=0.3, fr;q=0.7", French),
        ("nl, ja;q=0.5, de;q=0.4", Japanese),
        ("zh-Hant-TW, fr-CA;q=0.9", French),
        ("fr;q=0.5, de;q=0.5", French),
        ("fr ; Q=0.5 , de ; q=0.501", German),
        ("de;q=0, es;q=0.1", Spanish),
        ("de;q=0", English),
        ("*", English),
        ("", English),
        ("nl, it", English),
        ("den, deu, english", English),
        ("de;q=NaN, de;q=2, de;q=-1, de;q=, de;level=1, de;q, ;q=1, ;, fr;q=0.1", French),
        ("é, ja", English),
    ] {
        assert_eq!(language(&[list]), expected, "{list}");
    }
    assert_eq!(language(&[]), English);
    assert_eq!(language(&["nl", "es"]), Spanish, "the lines of a header are one list");
    let many = ["de;q=0.1"; 500].join(",") + ",fr";
    assert_eq!(language(&[&many]), French);
}

/// Every text with its name, with [`VALUES`] for its values. A new text has to be added here, or this does not compile.
fn all(texts: &Texts) -> BTreeMap<&'static str, Vec<String>> {
    let [one, two, three] = VALUES;
    let about = |about: About| [Contact::Merchant, Contact::Sender].map(about).to_vec();
    let said = |(headline, text): Said| vec![headline.to_owned(), text.to_owned()];
    let plain = |text: &str| vec![text.to_owned()];
    let around = |(before, after): Around| vec![format!("{before}{one}{after}")];
    let with = |with: With| vec![with(one)];
    let both = |text: fn(&str, Contact) -> String| [Contact::Merchant, Contact::Sender].map(|c| text(one, c)).to_vec();
    let sums = |text: fn(&str, &str, Contact) -> String| {
        [Contact::Merchant, Contact::Sender].map(|contact| text(one, two, contact)).to_vec()
    };
    let Texts {
        waiting,
        choose,
        part_seen,
        part_seen_text,
        seen,
        seen_text,
        rest_seen_text,
        checked,
        chain_waits,
        time_up,
        signed,
        signed_text,
        signed_checked_text,
        confirmed,
        complete,
        complete_text,
        incomplete,
        incomplete_text,
        underpaid_text,
        late,
        late_text,
        overpaid,
        overpaid_text,
        mismatched,
        mismatched_text,
        expired,
        expired_text,
        cancelled,
        cancelled_text,
        blocked_text,
        sent_back,
        sent_back_text,
        failed,
        failed_text,
        signature_used,
        signature_refused,
        signature_expired,
        wrong_token,
        wrong_chain,
        under_check,
        under_check_contact,
        excess,
        refund_held,
        refund_going,
        refund_sent,
        test,
        on_chain,
        time_left,
        pay_until,
        progress,
        steps,
        step_done,
        confirmations,
        waits_for_finality,
        reload,
        get_money_back,
        return_to,
        choose_chain,
        scan,
        code_choice,
        code_request,
        code_address,
        code_request_label,
        code_address_label,
        code_address_hint,
        to_send,
        send_exactly,
        on_the_chain,
        to_this_address,
        token_contract,
        copy,
        copy_amount,
        copy_address,
        copy_contract,
        wallets,
        open_in_app,
        only,
        only_why,
        what_you_sign,
        sign_text,
        sign_message,
        sign_to,
        sign_value,
        sign_nonce,
        arrived,
        counted,
        unknown_token,
        transfer_orphaned,
        transfer_stray,
        transfer_confirmed,
        transfer_seen,
        transfer_checked,
        transaction,
        settlement,
        not_found,
        too_many,
        unavailable,
        script:
            ScriptTexts {
                live,
                connecting,
                copied,
                pay,
                pay_with,
                sign,
                sign_with,
                declined,
                unknown_chain,
                sign_now,
                sending,
                collected,
                refused,
                too_little,
                cannot_sign,
                confirm_now,
                sent,
                wallet_failed,
            },
    } = texts;
    let (before, after) = sign_text(one);
    let named = [
        ("waiting", said(*waiting)),
        ("choose", said(*choose)),
        ("part_seen", plain(part_seen)),
        ("part_seen_text", vec![part_seen_text(one, two, three)]),
        ("seen", plain(seen)),
        ("seen_text", with(*seen_text)),
        ("rest_seen_text", plain(rest_seen_text)),
        ("checked", said(*checked)),
        ("chain_waits", said(*chain_waits)),
        ("time_up", said(*time_up)),
        ("signed", plain(signed)),
        ("signed_text", with(*signed_text)),
        ("signed_checked_text", plain(signed_checked_text)),
        ("confirmed", said(*confirmed)),
        ("complete", plain(complete)),
        ("complete_text", about(*complete_text)),
        ("incomplete", plain(incomplete)),
        ("incomplete_text", vec![incomplete_text(one, two, three)]),
        ("underpaid_text", sums(*underpaid_text)),
        ("late", plain(late)),
        ("late_text", about(*late_text)),
        ("overpaid", plain(overpaid)),
        ("overpaid_text", sums(*overpaid_text)),
        ("mismatched", plain(mismatched)),
        ("mismatched_text", about(*mismatched_text)),
        ("expired", plain(expired)),
        ("expired_text", about(*expired_text)),
        ("cancelled", plain(cancelled)),
        ("cancelled_text", about(*cancelled_text)),
        ("blocked_text", about(*blocked_text)),
        ("sent_back", plain(sent_back)),
        ("sent_back_text", about(*sent_back_text)),
        ("failed", plain(failed)),
        ("failed_text", about(*failed_text)),
        ("signature_used", plain(signature_used)),
        ("signature_refused", plain(signature_refused)),
        ("signature_expired", plain(signature_expired)),
        ("wrong_token", both(*wrong_token)),
        ("wrong_chain", both(*wrong_chain)),
        ("under_check", plain(under_check)),
        ("under_check_contact", about(*under_check_contact)),
        ("excess", both(*excess)),
        ("refund_held", with(*refund_held)),
        ("refund_going", with(*refund_going)),
        ("refund_sent", with(*refund_sent)),
        ("test", said(*test)),
        ("on_chain", with(*on_chain)),
        ("time_left", around(*time_left)),
        ("pay_until", around(*pay_until)),
        ("progress", plain(progress)),
        ("steps", steps.map(str::to_owned).to_vec()),
        ("step_done", plain(step_done)),
        ("confirmations", vec![confirmations(1, 2)]),
        ("waits_for_finality", plain(waits_for_finality)),
        ("reload", plain(reload)),
        ("get_money_back", plain(get_money_back)),
        ("return_to", with(*return_to)),
        ("choose_chain", with(*choose_chain)),
        ("scan", plain(scan)),
        ("code_choice", plain(code_choice)),
        ("code_request", plain(code_request)),
        ("code_address", plain(code_address)),
        ("code_request_label", vec![code_request_label(one, two, three)]),
        ("code_address_label", with(*code_address_label)),
        ("code_address_hint", vec![code_address_hint(one, two)]),
        ("to_send", plain(to_send)),
        ("send_exactly", plain(send_exactly)),
        ("on_the_chain", plain(on_the_chain)),
        ("to_this_address", plain(to_this_address)),
        ("token_contract", with(*token_contract)),
        ("copy", plain(copy)),
        ("copy_amount", plain(copy_amount)),
        ("copy_address", plain(copy_address)),
        ("copy_contract", plain(copy_contract)),
        ("wallets", plain(wallets)),
        ("open_in_app", plain(open_in_app)),
        ("only", vec![only(one, two)]),
        ("only_why", about(*only_why)),
        ("what_you_sign", plain(what_you_sign)),
        ("sign_text", vec![format!("{before}{after}")]),
        ("sign_message", plain(sign_message)),
        ("sign_to", plain(sign_to)),
        ("sign_value", plain(sign_value)),
        ("sign_nonce", plain(sign_nonce)),
        ("arrived", plain(arrived)),
        ("counted", vec![counted(one, two)]),
        ("unknown_token", with(*unknown_token)),
        ("transfer_orphaned", plain(transfer_orphaned)),
        ("transfer_stray", plain(transfer_stray)),
        ("transfer_confirmed", plain(transfer_confirmed)),
        ("transfer_seen", plain(transfer_seen)),
        ("transfer_checked", plain(transfer_checked)),
        ("transaction", plain(transaction)),
        ("settlement", plain(settlement)),
        ("not_found", said(*not_found)),
        ("too_many", said(*too_many)),
        ("unavailable", said(*unavailable)),
        ("live", plain(live)),
        ("connecting", plain(connecting)),
        ("copied", plain(copied)),
        ("pay", plain(pay)),
        ("pay_with", with(*pay_with)),
        ("sign", plain(sign)),
        ("sign_with", with(*sign_with)),
        ("declined", plain(declined)),
        ("unknown_chain", with(*unknown_chain)),
        ("sign_now", plain(sign_now)),
        ("sending", plain(sending)),
        ("collected", plain(collected)),
        ("refused", plain(refused)),
        ("too_little", plain(too_little)),
        ("cannot_sign", plain(cannot_sign)),
        ("confirm_now", plain(confirm_now)),
        ("sent", plain(sent)),
        ("wallet_failed", plain(wallet_failed)),
    ];
    let made = BTreeMap::from(named.clone());
    assert_eq!(made.len(), named.len(), "a name is used twice");
    made
}

#[test]
fn every_text_is_translated_with_all_of_its_values() {
    let english = all(Language::English.texts());
    for language in Language::ALL {
        let texts = all(language.texts());
        for ((name, texts), (_, english)) in texts.iter().zip(&english) {
            assert_eq!(texts.len(), english.len(), "{language} {name}");
            for (text, english) in texts.iter().zip(english) {
                assert!(!text.is_empty() && text.trim() == text, "{language} {name}: {text}");
                assert!(!text.contains("  "), "{language} {name}: {text}");
                for value in VALUES {
                    let counts = [text, english].map(|text| text.matches(value).count());
                    assert_eq!(counts[0], counts[1], "{language} {name}: {text}");
                }
                let is_same = text == english && language != Language::English;
                let may_be_same = SAME.iter().any(|same| text.contains(same));
                assert!(!is_same || may_be_same, "{language} {name} is not translated: {text}");
            }
        }
    }
}

#[test]
fn each_language_has_its_own_words_for_the_contact() {
    for language in Language::ALL {
        for (name, texts) in all(language.texts()) {
            if let [merchant, sender] = &texts[..]
                && (name.ends_with("_text") || name.starts_with("wrong") || name.ends_with("contact"))
                && name != "overpaid_text"
            {
                assert_ne!(merchant, sender, "{language} {name}");
            }
        }
    }
}

/// The script reads exactly these texts.
#[test]
fn the_script_uses_every_text_and_no_other() {
    let script = include_str!("../pay.js");
    let used = script
        .split("texts.")
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>());
    let used: std::collections::BTreeSet<String> = used.collect();
    for language in Language::ALL {
        let sent: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&language.texts().for_script()).unwrap();
        assert_eq!(sent.keys().cloned().collect::<std::collections::BTreeSet<_>>(), used, "{language}");
        for (name, value) in [("payWith", "{wallet}"), ("signWith", "{wallet}"), ("unknownChain", "{chain}")] {
            assert_eq!(sent[name].as_str().unwrap().matches(value).count(), 1, "{language} {name}");
        }
    }
}
