//! German.

use super::{Contact, ScriptTexts, Texts};

/// The party as a subject at the beginning of a sentence.
fn they(contact: Contact) -> &'static str {
    contact.pick("Der Händler", "Der Absender dieses Links")
}

/// The party as a subject in the middle of a sentence.
fn they_inside(contact: Contact) -> &'static str {
    contact.pick("der Händler", "der Absender dieses Links")
}

/// The party as an object, as in "an den Händler".
fn them(contact: Contact) -> &'static str {
    contact.pick("den Händler", "den Absender dieses Links")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "Warten auf Ihre Zahlung",
        "Senden Sie genau diesen Betrag an die angegebene Adresse. Auf dieser Seite sehen Sie, wenn er eintrifft.",
    ),
    choose: (
        "Blockchain wählen",
        "Sie können auf jeder dieser Blockchains zahlen. Wählen Sie die, auf der Ihr Geld liegt; die Wahl kann nicht geändert werden.",
    ),
    part_seen: "Ein Teil der Zahlung ist eingegangen",
    part_seen_text: |seen, due, missing| {
        format!(
            "{seen} von {due} sind eingegangen, zählen aber noch nicht. Es fehlen {missing}: Senden Sie diesen Betrag \
             rechtzeitig an dieselbe Adresse."
        )
    },
    seen: "Zahlung eingegangen",
    seen_text: |amount| {
        format!(
            "Ihre Überweisung über {amount} ist eingegangen und wird von der Blockchain bestätigt. Sie müssen nichts weiter tun."
        )
    },
    rest_seen_text: "Der Rest Ihrer Zahlung ist eingegangen und wird von der Blockchain bestätigt. Sie müssen nichts weiter tun.",
    checked: (
        "Zahlung wird geprüft",
        "Ihre Überweisung ist eingegangen und wird geprüft. Das kann etwas dauern. Sie müssen nichts tun; bitte zahlen \
         Sie nicht noch einmal.",
    ),
    chain_waits: (
        "Warten auf die Blockchain",
        "Ihre Überweisung war bereits sichtbar, aber die Blockchain hat ihren Block verworfen. Meist erscheint sie nach \
         wenigen Minuten wieder; bitte zahlen Sie vorerst nicht noch einmal.",
    ),
    time_up: (
        "Die Zeit ist abgelaufen",
        "Die Zahlungsfrist ist vorbei. Wir prüfen noch, ob rechtzeitig gesendete Überweisungen eintreffen; bitte senden \
         Sie jetzt nichts mehr.",
    ),
    signed: "Zahlung unterschrieben",
    signed_text: |amount| {
        format!("Ihre unterschriebene Zahlung über {amount} wird eingezogen. Sie müssen nichts weiter tun.")
    },
    signed_checked_text: "Ihre unterschriebene Zahlung wird geprüft. Das kann etwas dauern. Sie müssen nichts tun; bitte \
                          zahlen Sie nicht noch einmal.",
    confirmed: ("Zahlung bestätigt", "Vielen Dank. Ihre Zahlung ist endgültig; Sie müssen nichts weiter tun."),
    complete: "Zahlung abgeschlossen",
    complete_text: |contact| {
        let recipient = contact.pick("den Händler", "den Empfänger");
        format!("Vielen Dank. Ihre Zahlung ist eingegangen und wurde an {recipient} weitergeleitet.")
    },
    incomplete: "Zahlung unvollständig",
    incomplete_text: |received, due, missing| {
        format!(
            "{received} von {due} sind eingegangen. Es fehlen {missing}: Senden Sie diesen Betrag rechtzeitig an dieselbe \
             Adresse."
        )
    },
    underpaid_text: |received, due, contact| {
        format!(
            "{received} von {due} sind rechtzeitig eingegangen. {} wurde benachrichtigt und wird den Betrag annehmen oder \
             zurücksenden. Wenden Sie sich an {}; bitte senden Sie nichts mehr.",
            they(contact),
            them(contact)
        )
    },
    late: "Zahlung zu spät eingegangen",
    late_text: |contact| {
        format!(
            "Das Geld ist nach Ablauf der Zahlungsfrist eingegangen. {} wurde benachrichtigt und wird es annehmen oder \
             zurücksenden. Wenden Sie sich an {}; bitte zahlen Sie nicht noch einmal.",
            they(contact),
            them(contact)
        )
    },
    overpaid: "Es ist zu viel eingegangen",
    overpaid_text: |received, due, contact| {
        format!(
            "{received} statt {due} sind eingegangen. {} wurde benachrichtigt und wird den Betrag annehmen oder Geld \
             zurücksenden. Sie müssen nichts mehr zahlen.",
            they(contact)
        )
    },
    mismatched: "Die Zahlung passt nicht",
    mismatched_text: |contact| {
        format!(
            "Das eingegangene Geld passt nicht zur Zahlungsanforderung. {} wurde benachrichtigt. Wenden Sie sich an {}; \
             bitte senden Sie nichts mehr.",
            they(contact),
            them(contact)
        )
    },
    expired: "Zahlung abgelaufen",
    expired_text: |contact| {
        let them = them(contact);
        format!(
            "Die Zahlungsfrist ist vorbei. Senden Sie nichts mehr; bitten Sie {them} um einen neuen Link. Falls Sie \
             gerade Geld gesendet haben, wenden Sie sich an {them}: Es ist nicht verloren."
        )
    },
    cancelled: "Zahlung abgebrochen",
    cancelled_text: |contact| format!("{} hat diese Zahlung abgebrochen. Bitte senden Sie nichts.", they(contact)),
    blocked_text: |contact| {
        format!(
            "Das eingegangene Geld wird geprüft, und diese Zahlung kann nicht abgeschlossen werden. Senden Sie nichts \
             mehr; wenden Sie sich an {}.",
            them(contact)
        )
    },
    sent_back: "Zahlung zurückgesendet",
    sent_back_text: |contact| {
        format!(
            "Diese Zahlung konnte nicht abgeschlossen werden, und {} sendet sie zurück. Wenden Sie sich an {}, bevor Sie \
             noch einmal zahlen.",
            they_inside(contact),
            them(contact)
        )
    },
    failed: "Zahlung fehlgeschlagen",
    failed_text: |contact| format!("Bitte senden Sie nichts; wenden Sie sich an {}.", them(contact)),

    signature_used: "Ihre letzte Unterschrift wurde nicht verwendet: Sie wurde widerrufen oder anderswo verwendet. Es wurde \
                     kein Geld eingezogen; Sie können noch einmal zahlen.",
    signature_refused: "Ihre letzte Unterschrift wurde nicht verwendet: Dieses Konto kann nicht verwendet werden. Es wurde \
                        kein Geld eingezogen; Sie können noch einmal zahlen.",
    signature_expired: "Ihre letzte Unterschrift wurde nicht verwendet: Sie ist abgelaufen. Es wurde kein Geld eingezogen; \
                        Sie können noch einmal zahlen.",
    wrong_token: |token, contact| {
        format!(
            "Ein anderer Token als {token} ist eingegangen; er zählt für diese Zahlung nicht. Wenden Sie sich für die \
             Rücksendung an {}.",
            them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "Geld ist auf einer anderen Blockchain als {chain} eingegangen; es zählt für diese Zahlung nicht. Wenden Sie \
             sich für die Rücksendung an {}.",
            them(contact)
        )
    },
    under_check: "Eine eingegangene Überweisung wird geprüft und zählt bis dahin nicht.",
    under_check_contact: |contact| {
        format!(
            "Eine eingegangene Überweisung wird geprüft und zählt bis dahin nicht. Wenden Sie sich an {}.",
            them(contact)
        )
    },
    excess: |amount, contact| {
        format!(
            "{amount} sind nach dem Abschluss der Zahlung eingegangen. {} wurde benachrichtigt und kann den Betrag \
             zurücksenden.",
            they(contact)
        )
    },
    refund_held: |amount| format!("{amount} werden nach einer Prüfung zurückgesendet."),
    refund_going: |amount| format!("{amount} sind auf dem Weg zurück zu Ihnen."),
    refund_sent: |amount| format!("{amount} wurden zurückgesendet."),

    test: ("TEST", "Senden Sie kein echtes Geld."),
    on_chain: |chain| format!("auf {chain}"),
    time_left: ("noch ", ""),
    pay_until: ("Zahlbar bis ", ""),
    progress: "Fortschritt",
    steps: ["Warten auf Zahlung", "Zahlung eingegangen", "Bestätigt", "Abgeschlossen"],
    step_done: "(erledigt)",
    confirmations: |have, required| format!("{have} von {required} Bestätigungen"),
    waits_for_finality: "wartet auf die Endgültigkeit in der Blockchain",
    reload: "Neu laden, um den neuesten Stand zu sehen.",
    get_money_back: "Geld zurückfordern",
    return_to: |name| format!("Zurück zu {name}"),

    choose_chain: |chain| format!("Auf {chain} zahlen"),
    scan: "Mit einer Wallet-App scannen",
    code_choice: "Inhalt des QR-Codes",
    code_request: "Zahlungsanforderung",
    code_address: "Nur die Adresse",
    code_request_label: |amount, chain, address| format!("QR-Code: {amount} auf {chain} an {address} senden"),
    code_address_label: |address| format!("QR-Code: {address}"),
    code_address_hint: |amount, chain| format!("Wählen Sie in der App {chain} und geben Sie genau {amount} ein."),
    to_send: "Angaben zur Zahlung",
    send_exactly: "Genauer Betrag",
    on_the_chain: "Auf der Blockchain",
    to_this_address: "An diese Adresse",
    token_contract: |token| format!("Token-Vertrag von {token}"),
    copy: "Kopieren",
    copy_amount: "Betrag kopieren",
    copy_address: "Adresse kopieren",
    copy_contract: "Adresse des Token-Vertrags kopieren",
    wallets: "Wallets in diesem Browser",
    open_in_app: "In einer Wallet-App öffnen",
    only: |token, chain| format!("Senden Sie nur {token} auf {chain}."),
    only_why: |contact| {
        format!(
            "Ein anderer Token oder eine andere Blockchain zählt für diese Zahlung nicht; wenden Sie sich für die \
             Rücksendung an {}.",
            them(contact)
        )
    },
    what_you_sign: "Was Sie unterschreiben",
    sign_text: |amount| {
        let before = format!(
            "Eine Nachricht, mit der der Zahlungsvertrag {amount} für diese Zahlung von Ihrem Konto einziehen darf, und \
             sonst nichts, bis "
        );
        (before, ". Sie brauchen keine Coins für Gas.")
    },
    sign_message: "Nachricht",
    sign_to: "An",
    sign_value: "Wert (kleinste Einheiten)",
    sign_nonce: "Nonce",

    arrived: "Eingegangene Überweisungen",
    counted: |received, due| format!("Für diese Zahlung gezählt: {received} von {due}"),
    unknown_token: |amount| format!("{amount} eines unbekannten Tokens"),
    transfer_orphaned: "von der Blockchain verworfen",
    transfer_stray: "zählt für diese Zahlung nicht",
    transfer_confirmed: "bestätigt",
    transfer_seen: "wird bestätigt",
    transfer_checked: "wird geprüft",
    transaction: "Transaktion",
    settlement: "Weitergeleitet:",

    not_found: (
        "Zahlung nicht gefunden",
        "Zu diesem Link gibt es keine Zahlung. Bitten Sie den Absender um einen neuen Link.",
    ),
    too_many: ("Zu viele Anfragen", "Warten Sie eine Minute und laden Sie die Seite dann neu."),
    unavailable: ("Nicht verfügbar", "Die Seite kann im Moment nicht angezeigt werden. Laden Sie sie in Kürze neu."),

    script: ScriptTexts {
        live: "Diese Seite aktualisiert sich selbst.",
        connecting: "Verbindung wird aufgebaut …",
        copied: "Kopiert",
        pay: "Mit der Wallet in diesem Browser zahlen",
        pay_with: |wallet| format!("Mit {wallet} zahlen"),
        sign: "Mit der Wallet in diesem Browser zahlen, ohne Gas",
        sign_with: |wallet| format!("Mit {wallet} zahlen, ohne Gas"),
        declined: "Sie haben in Ihrer Wallet abgelehnt; es wurde nichts gesendet.",
        unknown_chain: |chain| {
            format!(
                "Ihre Wallet kennt {chain} nicht. Fügen Sie die Blockchain dort hinzu und versuchen Sie es noch einmal."
            )
        },
        sign_now: "Unterschreiben Sie die Zahlung in Ihrer Wallet. Das kostet kein Gas.",
        sending: "Die unterschriebene Zahlung wird gesendet …",
        collected: "Ihre unterschriebene Zahlung wird eingezogen. Sie müssen nichts weiter tun.",
        refused: "Die Zahlung wurde nicht angenommen. Es wurde kein Geld eingezogen.",
        too_little: "Das Guthaben dieses Kontos reicht für die Zahlung nicht aus. Es wurde kein Geld eingezogen.",
        cannot_sign: "Ihre Wallet konnte nicht unterschreiben. Senden Sie stattdessen den Betrag.",
        confirm_now: "Bestätigen Sie die Zahlung in Ihrer Wallet.",
        sent: "Ihre Wallet hat die Zahlung gesendet. Sie erscheint hier, sobald sie in der Blockchain ist; senden Sie sie \
               nicht zweimal.",
        wallet_failed: "Ihre Wallet hat einen Fehler gemeldet. Scannen Sie den Code oder kopieren Sie die Adresse.",
    },
};
