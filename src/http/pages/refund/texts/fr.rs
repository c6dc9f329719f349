//! Words of the refund page in French.

use super::Texts;

pub(super) static TEXTS: Texts = Texts {
    headline: "Récupérer l’argent",
    back: "Retour au paiement",
    explanation: "Cet argent est arrivé en retard, dans un autre jeton ou sur une autre blockchain, ou dépasse \
                  le montant du paiement. Il est conservé en sécurité, et vous pouvez demander qu’il vous soit \
                  renvoyé.",
    nothing: "Il n’y a pas d’argent à renvoyer pour le moment.",
    settling: "Le paiement est en cours de finalisation. Revenez dans quelques minutes pour que le reste vous \
               soit renvoyé.",
    not_offered: "Cette page ne peut pas renvoyer d’argent pour ce paiement. {ask}",
    available: "Argent qui peut être renvoyé",
    sum: "{amount} {token} sur {chain}",
    late: "arrivé après la fin du délai de paiement",
    excess: "plus que le montant du paiement",
    wrong_token: "un autre jeton que celui demandé",
    wrong_chain: "une autre blockchain que celle demandée",
    unknown_token: "d’un jeton inconnu",
    sign_headline: "Vous avez payé depuis votre propre portefeuille",
    sign_at_once: "Connectez le compte qui a envoyé l’argent et signez un message. L’argent est renvoyé à ce \
                   compte. La signature ne coûte rien.",
    sign_approve: "Connectez le compte qui a envoyé l’argent et signez un message. {contact} décide, et l’argent \
                   est renvoyé à ce compte. La signature ne coûte rien.",
    sign_button: "Signer avec le portefeuille de ce navigateur",
    sign_no_wallet: "Pour signer, ouvrez cette page dans le navigateur où se trouve votre portefeuille.",
    signed_message: "Le message que vous signez",
    form_headline: "Vous avez payé depuis une plateforme d’échange",
    form_explanation: "Indiquez une de vos adresses pour le même jeton sur la même blockchain, par exemple \
                       l’adresse de dépôt de votre plateforme. {contact} examine la demande et décide.",
    form_money: "Argent",
    form_address: "Votre adresse",
    form_address_hint: "0x et 40 caractères. L’argent envoyé à une mauvaise adresse est perdu.",
    form_note: "Remarque (facultatif)",
    form_note_hint: "Pas de noms, de numéros de compte ni d’autres données personnelles.",
    form_button: "Demander le remboursement",
    requests: "Demandes",
    requested: "{contact} a reçu la demande et décide.",
    approved: "L’argent est en route.",
    held: "L’argent sera envoyé après une vérification.",
    sent: "L’argent a été envoyé.",
    failed: "L’argent n’a pas pu être envoyé. {ask}",
    declined: "{contact} a refusé la demande.",
    done: "Votre demande a été reçue.",
    contact: ["Le commerçant", "L’expéditeur de ce lien"],
    ask: ["Contactez le commerçant.", "Contactez l’expéditeur de ce lien."],
    script: &[
        ("connect", "Choisissez dans votre portefeuille le compte qui a envoyé l’argent."),
        (
            "stranger",
            "Ce compte n’a rien envoyé de l’argent qui peut être renvoyé. Choisissez le compte qui l’a \
                      envoyé.",
        ),
        ("sign", "Signez le message dans votre portefeuille. Cela ne coûte rien."),
        ("declined", "Vous avez refusé dans votre portefeuille ; rien n’a été demandé."),
        (
            "failed",
            "Votre portefeuille a signalé une erreur. Réessayez, ou utilisez un autre portefeuille avec \
                    le même compte.",
        ),
        ("sending", "Envoi de votre demande…"),
        ("offline", "Le service n’a pas répondu. Rechargez la page pour voir si votre demande a été reçue."),
    ],
    errors: &[
        ("payer_refunds_off", "Cette page ne peut pas renvoyer d’argent pour ce paiement."),
        ("refund_not_sender", "Ce compte n’a rien envoyé de l’argent qui peut être renvoyé."),
        ("nothing_to_refund", "Cet argent n’est plus ici. Rechargez la page."),
        ("refund_too_large", "Le montant a changé. Rechargez la page."),
        ("payment_pending", "Le paiement n’est pas encore décidé. Réessayez plus tard."),
        ("settlement_in_progress", "Le paiement est en cours de finalisation. Réessayez dans quelques minutes."),
        ("refund_requests_open", "Trop de demandes attendent une décision. Réessayez plus tard."),
        ("refund_requests_exhausted", "Aucune autre demande n’est acceptée pour ce paiement."),
        ("above_send_limit", "Le montant est trop élevé pour cette page."),
        ("psp_paused", "Aucun argent ne peut être renvoyé pour le moment. Réessayez plus tard."),
        ("refund_signature", "La signature ne vient pas du compte qui a envoyé l’argent."),
        ("refund_message_expired", "Le message est trop ancien. Signez-en un nouveau."),
        ("rate_limited", "Trop de demandes. Attendez une minute, puis réessayez."),
        ("chain_unavailable", "La blockchain ne répond pas pour le moment. Réessayez."),
        ("validation_failed", "L’adresse ou la remarque ne peut pas être utilisée. Vérifiez-les."),
        ("", "La demande ne peut pas être acceptée pour le moment. Réessayez plus tard."),
    ],
};
