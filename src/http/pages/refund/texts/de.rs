//! Words of the refund page in German.

use super::Texts;

pub(super) static TEXTS: Texts = Texts {
    headline: "Geld zurückfordern",
    back: "Zurück zur Zahlung",
    explanation: "Dieses Geld ist zu spät, in einem anderen Token oder auf einer anderen Blockchain eingegangen, \
                  oder es ist mehr, als für die Zahlung nötig war. Es ist sicher verwahrt, und Sie können es \
                  zurücksenden lassen.",
    nothing: "Zurzeit gibt es kein Geld zurückzusenden.",
    settling: "Die Zahlung wird gerade abgeschlossen. Kommen Sie in einigen Minuten wieder, um sich den Rest \
               zurücksenden zu lassen.",
    not_offered: "Diese Seite kann für diese Zahlung kein Geld zurücksenden. {ask}",
    available: "Geld, das zurückgesendet werden kann",
    sum: "{amount} {token} auf {chain}",
    late: "nach Ablauf der Zahlungsfrist eingegangen",
    excess: "mehr als für die Zahlung nötig",
    wrong_token: "ein anderer Token als der verlangte",
    wrong_chain: "eine andere Blockchain als die verlangte",
    unknown_token: "eines unbekannten Tokens",
    sign_headline: "Sie haben aus Ihrer eigenen Wallet gezahlt",
    sign_at_once: "Verbinden Sie das Konto, das das Geld gesendet hat, und signieren Sie eine Nachricht. Das \
                   Geld geht an dieses Konto zurück. Die Signatur kostet nichts.",
    sign_approve: "Verbinden Sie das Konto, das das Geld gesendet hat, und signieren Sie eine Nachricht. \
                   {contact} entscheidet, und das Geld geht an dieses Konto zurück. Die Signatur kostet nichts.",
    sign_button: "Mit der Wallet in diesem Browser signieren",
    sign_no_wallet: "Öffnen Sie diese Seite zum Signieren im Browser mit Ihrer Wallet.",
    signed_message: "Die Nachricht, die Sie signieren",
    form_headline: "Sie haben von einer Börse aus gezahlt",
    form_explanation: "Geben Sie eine eigene Adresse für denselben Token auf derselben Blockchain an, zum \
                       Beispiel die Einzahlungsadresse Ihrer Börse. {contact} prüft die Anfrage und entscheidet.",
    form_money: "Geld",
    form_address: "Ihre Adresse",
    form_address_hint: "0x und 40 Zeichen. Geld, das an eine falsche Adresse gesendet wird, ist verloren.",
    form_note: "Bemerkung (freiwillig)",
    form_note_hint: "Keine Namen, keine Kontonummern, keine anderen persönlichen Daten.",
    form_button: "Rückzahlung anfordern",
    requests: "Anfragen",
    requested: "{contact} wurde gefragt und entscheidet.",
    approved: "Es ist unterwegs.",
    held: "Es wird nach einer Prüfung gesendet.",
    sent: "Es wurde gesendet.",
    failed: "Es konnte nicht gesendet werden. {ask}",
    declined: "{contact} hat die Anfrage abgelehnt.",
    done: "Ihre Anfrage ist eingegangen.",
    contact: ["Der Händler", "Der Absender dieses Links"],
    ask: ["Wenden Sie sich an den Händler.", "Wenden Sie sich an den Absender dieses Links."],
    script: &[
        ("connect", "Wählen Sie in Ihrer Wallet das Konto, das das Geld gesendet hat."),
        (
            "stranger",
            "Dieses Konto hat nichts von dem Geld gesendet, das zurückgesendet werden kann. Wählen Sie \
                      das Konto, das es gesendet hat.",
        ),
        ("sign", "Signieren Sie die Nachricht in Ihrer Wallet. Das kostet nichts."),
        ("declined", "Sie haben in Ihrer Wallet abgelehnt; es wurde nichts angefordert."),
        (
            "failed",
            "Ihre Wallet hat einen Fehler gemeldet. Versuchen Sie es erneut, oder verwenden Sie eine \
                    andere Wallet mit demselben Konto.",
        ),
        ("sending", "Ihre Anfrage wird gesendet …"),
        (
            "offline",
            "Der Dienst hat nicht geantwortet. Laden Sie die Seite neu, um zu sehen, ob Ihre Anfrage \
                     eingegangen ist.",
        ),
    ],
    errors: &[
        ("payer_refunds_off", "Diese Seite kann für diese Zahlung kein Geld zurücksenden."),
        ("refund_not_sender", "Dieses Konto hat nichts von dem Geld gesendet, das zurückgesendet werden kann."),
        ("nothing_to_refund", "Dieses Geld ist nicht mehr hier. Laden Sie die Seite neu."),
        ("refund_too_large", "Der Betrag hat sich geändert. Laden Sie die Seite neu."),
        ("payment_pending", "Über die Zahlung ist noch nicht entschieden. Versuchen Sie es später erneut."),
        (
            "settlement_in_progress",
            "Die Zahlung wird gerade abgeschlossen. Versuchen Sie es in einigen Minuten \
                                    erneut.",
        ),
        ("refund_requests_open", "Zu viele Anfragen warten auf eine Entscheidung. Versuchen Sie es später erneut."),
        ("refund_requests_exhausted", "Für diese Zahlung werden keine weiteren Anfragen angenommen."),
        ("above_send_limit", "Der Betrag ist für diese Seite zu groß."),
        ("psp_paused", "Zurzeit kann kein Geld zurückgesendet werden. Versuchen Sie es später erneut."),
        ("refund_signature", "Die Signatur stammt nicht von dem Konto, das das Geld gesendet hat."),
        ("refund_message_expired", "Die Nachricht ist zu alt. Signieren Sie eine neue."),
        ("rate_limited", "Zu viele Anfragen. Warten Sie eine Minute, und versuchen Sie es dann erneut."),
        ("chain_unavailable", "Die Blockchain antwortet zurzeit nicht. Versuchen Sie es erneut."),
        ("validation_failed", "Die Adresse oder die Bemerkung kann nicht verwendet werden. Prüfen Sie beide."),
        ("", "Die Anfrage kann zurzeit nicht angenommen werden. Versuchen Sie es später erneut."),
    ],
};
