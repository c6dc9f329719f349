//! French.

use super::{Contact, ScriptTexts, Texts};

/// The party at the beginning of a sentence.
fn they(contact: Contact) -> &'static str {
    contact.pick("Le commerçant", "L’expéditeur de ce lien")
}

/// The party in the middle of a sentence.
fn them(contact: Contact) -> &'static str {
    contact.pick("le commerçant", "l’expéditeur de ce lien")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "En attente de votre paiement",
        "Envoyez exactement ce montant à l’adresse indiquée. Vous verrez son arrivée sur cette page.",
    ),
    choose: (
        "Choisissez une blockchain",
        "Vous pouvez payer sur chacune de ces blockchains. Choisissez celle où se trouve votre argent ; ce choix est définitif.",
    ),
    part_seen: "Une partie du paiement est arrivée",
    part_seen_text: |seen, due, missing| {
        format!(
            "{seen} sur {due} ont été détectés et ne comptent pas encore. Il manque {missing} : envoyez cette somme à la \
             même adresse dans le délai."
        )
    },
    seen: "Paiement détecté",
    seen_text: |amount| {
        format!(
            "Votre virement de {amount} est arrivé et la blockchain est en train de le confirmer. Vous n’avez plus rien à faire."
        )
    },
    rest_seen_text: "Le reste de votre paiement est arrivé et la blockchain est en train de le confirmer. Vous n’avez plus \
                     rien à faire.",
    checked: (
        "Paiement en cours de vérification",
        "Votre virement est arrivé et fait l’objet d’une vérification, ce qui peut prendre un peu de temps. Vous n’avez \
         rien à faire ; ne payez pas une seconde fois.",
    ),
    chain_waits: (
        "En attente de la blockchain",
        "Votre virement avait été détecté, mais la blockchain a écarté son bloc. Il réapparaît en général au bout de \
         quelques minutes ; ne payez pas encore une seconde fois.",
    ),
    time_up: (
        "Le délai est écoulé",
        "Le délai de paiement est écoulé. Nous vérifions encore l’arrivée de virements envoyés à temps ; n’envoyez plus \
         rien maintenant.",
    ),
    signed: "Paiement signé",
    signed_text: |amount| {
        format!("Votre paiement signé de {amount} est en cours d’encaissement. Vous n’avez plus rien à faire.")
    },
    signed_checked_text: "Votre paiement signé fait l’objet d’une vérification, ce qui peut prendre un peu de temps. Vous \
                          n’avez rien à faire ; ne payez pas une seconde fois.",
    confirmed: ("Paiement confirmé", "Merci. Votre paiement est définitif ; vous n’avez plus rien à faire."),
    complete: "Paiement terminé",
    complete_text: |contact| {
        let recipient = contact.pick("au commerçant", "au destinataire");
        format!("Merci. Votre paiement est arrivé et a été transmis {recipient}.")
    },
    incomplete: "Paiement incomplet",
    incomplete_text: |received, due, missing| {
        format!(
            "{received} sur {due} sont arrivés. Il manque {missing} : envoyez cette somme à la même adresse dans le délai."
        )
    },
    underpaid_text: |received, due, contact| {
        format!(
            "{received} sur {due} sont arrivés à temps. {} a été prévenu et acceptera cette somme ou la renverra. Contactez \
             {} ; n’envoyez plus rien.",
            they(contact),
            them(contact)
        )
    },
    late: "Paiement arrivé en retard",
    late_text: |contact| {
        format!(
            "L’argent est arrivé après la fin du délai de paiement. {} a été prévenu et l’acceptera ou le renverra. \
             Contactez {} ; ne payez pas une seconde fois.",
            they(contact),
            them(contact)
        )
    },
    overpaid: "Un montant trop élevé est arrivé",
    overpaid_text: |received, due, contact| {
        format!(
            "{received} sont arrivés au lieu de {due}. {} a été prévenu et acceptera cette somme ou renverra de l’argent. \
             Vous n’avez rien à payer.",
            they(contact)
        )
    },
    mismatched: "Le paiement ne correspond pas",
    mismatched_text: |contact| {
        format!(
            "L’argent reçu ne correspond pas à la demande. {} a été prévenu. Contactez {} ; n’envoyez plus rien.",
            they(contact),
            them(contact)
        )
    },
    expired: "Paiement expiré",
    expired_text: |contact| {
        format!(
            "Le délai de paiement est écoulé. N’envoyez rien ; demandez un nouveau lien {}. Si vous venez d’envoyer de \
             l’argent, contactez {} : il n’est pas perdu.",
            contact.pick("au commerçant", "à l’expéditeur de ce lien"),
            them(contact)
        )
    },
    cancelled: "Paiement annulé",
    cancelled_text: |contact| format!("{} a annulé ce paiement. N’envoyez rien.", they(contact)),
    blocked_text: |contact| {
        format!(
            "L’argent reçu fait l’objet d’une vérification et ce paiement ne peut pas aboutir. N’envoyez plus rien ; \
             contactez {}.",
            them(contact)
        )
    },
    sent_back: "Paiement renvoyé",
    sent_back_text: |contact| {
        let them = them(contact);
        format!("Ce paiement n’a pas pu aboutir et {them} le renverra. Contactez {them} avant de payer à nouveau.")
    },
    failed: "Le paiement a échoué",
    failed_text: |contact| format!("N’envoyez rien ; contactez {}.", them(contact)),

    signature_used: "Votre dernière signature n’a pas été utilisée : elle a été annulée ou utilisée ailleurs. Aucun argent n’a \
                     été prélevé ; vous pouvez payer à nouveau.",
    signature_refused: "Votre dernière signature n’a pas été utilisée : ce compte ne peut pas être utilisé. Aucun argent n’a \
                        été prélevé ; vous pouvez payer à nouveau.",
    signature_expired: "Votre dernière signature n’a pas été utilisée : elle a expiré. Aucun argent n’a été prélevé ; vous \
                        pouvez payer à nouveau.",
    wrong_token: |token, contact| {
        format!(
            "Un autre jeton que {token} est arrivé ; il ne compte pas pour ce paiement. Contactez {} pour qu’il vous soit \
             renvoyé.",
            them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "De l’argent est arrivé sur une autre blockchain que {chain} ; il ne compte pas pour ce paiement. Contactez {} \
             pour qu’il vous soit renvoyé.",
            them(contact)
        )
    },
    under_check: "Un virement reçu fait l’objet d’une vérification et ne compte pas d’ici là.",
    under_check_contact: |contact| {
        format!(
            "Un virement reçu fait l’objet d’une vérification et ne compte pas d’ici là. Contactez {}.",
            them(contact)
        )
    },
    excess: |amount, contact| {
        format!(
            "{amount} sont arrivés après la fin du paiement. {} a été prévenu et peut renvoyer cette somme.",
            they(contact)
        )
    },
    refund_held: |amount| format!("{amount} seront renvoyés après une vérification."),
    refund_going: |amount| format!("{amount} sont en cours de renvoi."),
    refund_sent: |amount| format!("{amount} ont été renvoyés."),

    test: ("TEST", "N’envoyez pas d’argent réel."),
    on_chain: |chain| format!("sur {chain}"),
    time_left: ("encore ", ""),
    pay_until: ("À payer avant le ", ""),
    progress: "Progression",
    steps: ["En attente du paiement", "Paiement détecté", "Confirmé", "Terminé"],
    step_done: "(fait)",
    confirmations: |have, required| format!("{have} confirmations sur {required}"),
    waits_for_finality: "en attente du caractère définitif sur la blockchain",
    reload: "Actualisez la page pour voir l’état actuel.",
    get_money_back: "Récupérer l’argent",
    return_to: |name| format!("Retour vers {name}"),

    choose_chain: |chain| format!("Payer sur {chain}"),
    scan: "Scannez avec une application de portefeuille",
    code_choice: "Contenu du code QR",
    code_request: "Demande de paiement",
    code_address: "Adresse seule",
    code_request_label: |amount, chain, address| format!("Code QR : envoyer {amount} sur {chain} à {address}"),
    code_address_label: |address| format!("Code QR : {address}"),
    code_address_hint: |amount, chain| {
        format!("Dans l’application, choisissez {chain} et saisissez exactement {amount}.")
    },
    to_send: "Détails du paiement",
    send_exactly: "Montant exact",
    on_the_chain: "Sur la blockchain",
    to_this_address: "À cette adresse",
    token_contract: |token| format!("Contrat du jeton {token}"),
    copy: "Copier",
    copy_amount: "Copier le montant",
    copy_address: "Copier l’adresse",
    copy_contract: "Copier le contrat",
    wallets: "Portefeuilles dans ce navigateur",
    open_in_app: "Ouvrir dans une application de portefeuille",
    only: |token, chain| format!("Envoyez uniquement {token} sur {chain}."),
    only_why: |contact| {
        format!(
            "Un autre jeton ou une autre blockchain ne compte pas pour ce paiement ; pour récupérer l’argent, contactez {}.",
            them(contact)
        )
    },
    what_you_sign: "Ce que vous signez",
    sign_text: |amount| {
        let before = format!(
            "Un message qui autorise le contrat de paiement à prélever {amount} sur votre compte pour ce paiement, et rien \
             d’autre, jusqu’au "
        );
        (before, ". Vous n’avez pas besoin de jetons pour le gaz.")
    },
    sign_message: "Message",
    sign_to: "Destinataire",
    sign_value: "Valeur (plus petites unités)",
    sign_nonce: "Nonce",

    arrived: "Virements reçus",
    counted: |received, due| format!("Compté pour ce paiement : {received} sur {due}"),
    unknown_token: |amount| format!("{amount} d’un jeton inconnu"),
    transfer_orphaned: "écarté par la blockchain",
    transfer_stray: "ne compte pas pour ce paiement",
    transfer_confirmed: "confirmé",
    transfer_seen: "en cours de confirmation",
    transfer_checked: "en cours de vérification",
    transaction: "Transaction",
    settlement: "Transmis :",

    not_found: (
        "Paiement introuvable",
        "Aucun paiement ne correspond à ce lien. Demandez-en un nouveau à son expéditeur.",
    ),
    too_many: ("Trop de requêtes", "Attendez une minute, puis actualisez la page."),
    unavailable: (
        "Indisponible",
        "La page ne peut pas être affichée pour le moment. Actualisez-la dans quelques instants.",
    ),

    script: ScriptTexts {
        live: "Cette page s’actualise toute seule.",
        connecting: "Connexion…",
        copied: "Copié",
        pay: "Payer avec le portefeuille de ce navigateur",
        pay_with: |wallet| format!("Payer avec {wallet}"),
        sign: "Payer avec le portefeuille de ce navigateur, sans gaz",
        sign_with: |wallet| format!("Payer avec {wallet}, sans gaz"),
        declined: "Vous avez refusé dans votre portefeuille ; rien n’a été envoyé.",
        unknown_chain: |chain| {
            format!("Votre portefeuille ne connaît pas {chain}. Ajoutez-y cette blockchain, puis réessayez.")
        },
        sign_now: "Signez le paiement dans votre portefeuille. Cela ne coûte pas de gaz.",
        sending: "Envoi du paiement signé…",
        collected: "Votre paiement signé est en cours d’encaissement. Vous n’avez plus rien à faire.",
        refused: "Le paiement n’a pas été accepté. Aucun argent n’a été prélevé.",
        too_little: "Le solde de ce compte ne suffit pas pour le paiement. Aucun argent n’a été prélevé.",
        cannot_sign: "Votre portefeuille n’a pas pu signer. Envoyez plutôt le montant.",
        confirm_now: "Confirmez le paiement dans votre portefeuille.",
        sent: "Votre portefeuille a envoyé le paiement. Il apparaîtra ici dès qu’il sera dans la blockchain ; ne l’envoyez pas \
               deux fois.",
        wallet_failed: "Votre portefeuille a signalé une erreur. Scannez le code ou copiez l’adresse.",
    },
};
