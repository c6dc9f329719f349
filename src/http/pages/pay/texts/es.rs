//! Spanish.

use super::{Contact, ScriptTexts, Texts};

/// The party at the beginning of a sentence.
fn they(contact: Contact) -> &'static str {
    contact.pick("El comercio", "El remitente de este enlace")
}

/// The party as a subject in the middle of a sentence.
fn they_inside(contact: Contact) -> &'static str {
    contact.pick("el comercio", "el remitente de este enlace")
}

/// The party as an object, with its preposition: "with".
fn with_them(contact: Contact) -> &'static str {
    contact.pick("con el comercio", "con el remitente de este enlace")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "Esperando su pago",
        "Envíe exactamente este importe a la dirección indicada. En esta página verá cuándo llega.",
    ),
    choose: (
        "Elija una cadena de bloques",
        "Puede pagar en cualquiera de estas cadenas de bloques. Elija aquella en la que tiene el dinero; la elección no se puede cambiar.",
    ),
    part_seen: "Se ha recibido una parte del pago",
    part_seen_text: |seen, due, missing| {
        format!(
            "Se han detectado {seen} de {due}, que todavía no cuentan. Faltan {missing}: envíelos a la misma dirección \
             dentro del plazo."
        )
    },
    seen: "Pago detectado",
    seen_text: |amount| {
        format!(
            "Su transferencia de {amount} ha llegado y la cadena de bloques la está confirmando. No tiene que hacer nada más."
        )
    },
    rest_seen_text: "El resto de su pago ha llegado y la cadena de bloques lo está confirmando. No tiene que hacer nada más.",
    checked: (
        "Pago en revisión",
        "Su transferencia ha llegado y se está revisando, lo que puede tardar un poco. No tiene que hacer nada; no vuelva \
         a pagar.",
    ),
    chain_waits: (
        "Esperando a la cadena de bloques",
        "Su transferencia se había detectado, pero la cadena de bloques ha descartado su bloque. Suele reaparecer en unos \
         minutos; de momento no vuelva a pagar.",
    ),
    time_up: (
        "Se acabó el tiempo",
        "El plazo para pagar ha terminado. Aún comprobamos si llegan transferencias enviadas a tiempo; no envíe nada ahora.",
    ),
    signed: "Pago firmado",
    signed_text: |amount| format!("Se está cobrando su pago firmado de {amount}. No tiene que hacer nada más."),
    signed_checked_text: "Su pago firmado se está revisando, lo que puede tardar un poco. No tiene que hacer nada; no vuelva a \
                          pagar.",
    confirmed: ("Pago confirmado", "Gracias. Su pago es definitivo; no tiene que hacer nada más."),
    complete: "Pago completado",
    complete_text: |contact| {
        let recipient = contact.pick("al comercio", "al destinatario");
        format!("Gracias. Su pago ha llegado y se ha entregado {recipient}.")
    },
    incomplete: "Pago incompleto",
    incomplete_text: |received, due, missing| {
        format!("Han llegado {received} de {due}. Faltan {missing}: envíelos a la misma dirección dentro del plazo.")
    },
    underpaid_text: |received, due, contact| {
        format!(
            "Han llegado a tiempo {received} de {due}. {} ha recibido un aviso y aceptará el importe o lo devolverá. \
             Póngase en contacto {}; no envíe nada más.",
            they(contact),
            with_them(contact)
        )
    },
    late: "El pago llegó tarde",
    late_text: |contact| {
        format!(
            "El dinero llegó después del plazo para pagar. {} ha recibido un aviso y lo aceptará o lo devolverá. Póngase \
             en contacto {}; no vuelva a pagar.",
            they(contact),
            with_them(contact)
        )
    },
    overpaid: "Ha llegado más de lo debido",
    overpaid_text: |received, due, contact| {
        format!(
            "Han llegado {received} en lugar de {due}. {} ha recibido un aviso y aceptará el importe o devolverá dinero. \
             No tiene que pagar nada.",
            they(contact)
        )
    },
    mismatched: "El pago no coincide",
    mismatched_text: |contact| {
        format!(
            "El dinero recibido no coincide con la solicitud. {} ha recibido un aviso. Póngase en contacto {}; no envíe \
             nada más.",
            they(contact),
            with_them(contact)
        )
    },
    expired: "Pago caducado",
    expired_text: |contact| {
        format!(
            "El plazo para pagar ha terminado. No envíe nada; pida un enlace nuevo {}. Si acaba de enviar dinero, póngase \
             en contacto {}: no se ha perdido.",
            contact.pick("al comercio", "al remitente de este enlace"),
            with_them(contact)
        )
    },
    cancelled: "Pago cancelado",
    cancelled_text: |contact| format!("{} ha cancelado este pago. No envíe nada.", they(contact)),
    blocked_text: |contact| {
        format!(
            "El dinero recibido se está revisando y este pago no se puede completar. No envíe nada más; póngase en \
             contacto {}.",
            with_them(contact)
        )
    },
    sent_back: "Pago devuelto",
    sent_back_text: |contact| {
        format!(
            "Este pago no se pudo completar y {} lo devolverá. Póngase en contacto {} antes de volver a pagar.",
            they_inside(contact),
            with_them(contact)
        )
    },
    failed: "El pago ha fallado",
    failed_text: |contact| format!("No envíe nada; póngase en contacto {}.", with_them(contact)),

    signature_used: "Su última firma no se ha usado: se anuló o se usó en otro lugar. No se ha cobrado nada; puede volver a \
                     pagar.",
    signature_refused: "Su última firma no se ha usado: esta cuenta no se puede utilizar. No se ha cobrado nada; puede volver a \
                        pagar.",
    signature_expired: "Su última firma no se ha usado: ha caducado. No se ha cobrado nada; puede volver a pagar.",
    wrong_token: |token, contact| {
        format!(
            "Ha llegado un token distinto de {token}, que no cuenta para este pago. Póngase en contacto {} para que se lo \
             devuelva.",
            with_them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "Ha llegado dinero por una cadena de bloques distinta de {chain}, que no cuenta para este pago. Póngase en \
             contacto {} para que se lo devuelva.",
            with_them(contact)
        )
    },
    under_check: "Una transferencia recibida se está revisando y no cuenta hasta entonces.",
    under_check_contact: |contact| {
        format!(
            "Una transferencia recibida se está revisando y no cuenta hasta entonces. Póngase en contacto {}.",
            with_them(contact)
        )
    },
    excess: |amount, contact| {
        format!(
            "Han llegado {amount} después de completarse el pago. {} ha recibido un aviso y puede devolverlos.",
            they(contact)
        )
    },
    refund_held: |amount| format!("Se devolverán {amount} tras una revisión."),
    refund_going: |amount| format!("La devolución de {amount} está en camino."),
    refund_sent: |amount| format!("Se han devuelto {amount}."),

    test: ("PRUEBA", "No envíe dinero real."),
    on_chain: |chain| format!("en {chain}"),
    time_left: ("quedan ", ""),
    pay_until: ("Pague antes del ", ""),
    progress: "Progreso",
    steps: ["Esperando el pago", "Pago detectado", "Confirmado", "Completado"],
    step_done: "(hecho)",
    confirmations: |have, required| format!("{have} de {required} confirmaciones"),
    waits_for_finality: "a la espera de que sea definitivo en la cadena de bloques",
    reload: "Recargue la página para ver el estado actual.",
    get_money_back: "Recuperar el dinero",
    return_to: |name| format!("Volver a {name}"),

    choose_chain: |chain| format!("Pagar en {chain}"),
    scan: "Escanee con una aplicación de monedero",
    code_choice: "Contenido del código QR",
    code_request: "Solicitud de pago",
    code_address: "Solo la dirección",
    code_request_label: |amount, chain, address| format!("Código QR: enviar {amount} en {chain} a {address}"),
    code_address_label: |address| format!("Código QR: {address}"),
    code_address_hint: |amount, chain| format!("En la aplicación, elija {chain} e introduzca exactamente {amount}."),
    to_send: "Datos del pago",
    send_exactly: "Importe exacto",
    on_the_chain: "En la cadena de bloques",
    to_this_address: "A esta dirección",
    token_contract: |token| format!("Contrato del token {token}"),
    copy: "Copiar",
    copy_amount: "Copiar el importe",
    copy_address: "Copiar la dirección",
    copy_contract: "Copiar el contrato",
    wallets: "Monederos en este navegador",
    open_in_app: "Abrir en una aplicación de monedero",
    only: |token, chain| format!("Envíe solo {token} en {chain}."),
    only_why: |contact| {
        format!(
            "Otro token u otra cadena de bloques no cuentan para este pago; para recuperarlos, póngase en contacto {}.",
            with_them(contact)
        )
    },
    what_you_sign: "Lo que firma",
    sign_text: |amount| {
        let before = format!(
            "Un mensaje que permite al contrato de pago cobrar {amount} de su cuenta para este pago, y nada más, hasta el "
        );
        (before, ". No necesita monedas para el gas.")
    },
    sign_message: "Mensaje",
    sign_to: "Para",
    sign_value: "Valor (unidades mínimas)",
    sign_nonce: "Nonce",

    arrived: "Transferencias recibidas",
    counted: |received, due| format!("Contado para este pago: {received} de {due}"),
    unknown_token: |amount| format!("{amount} de un token desconocido"),
    transfer_orphaned: "descartada por la cadena de bloques",
    transfer_stray: "no cuenta para este pago",
    transfer_confirmed: "confirmada",
    transfer_seen: "confirmándose",
    transfer_checked: "en revisión",
    transaction: "Transacción",
    settlement: "Entregado:",

    not_found: ("No existe ese pago", "No hay ningún pago para este enlace. Pida uno nuevo a quien se lo envió."),
    too_many: ("Demasiadas solicitudes", "Espere un minuto y vuelva a cargar la página."),
    unavailable: (
        "No disponible",
        "La página no se puede mostrar en este momento. Vuelva a cargarla dentro de un rato.",
    ),

    script: ScriptTexts {
        live: "Esta página se actualiza sola.",
        connecting: "Conectando…",
        copied: "Copiado",
        pay: "Pagar con el monedero de este navegador",
        pay_with: |wallet| format!("Pagar con {wallet}"),
        sign: "Pagar con el monedero de este navegador, sin gas",
        sign_with: |wallet| format!("Pagar con {wallet}, sin gas"),
        declined: "Ha rechazado el pago en su monedero; no se ha enviado nada.",
        unknown_chain: |chain| {
            format!("Su monedero no conoce {chain}. Añada esa cadena de bloques e inténtelo de nuevo.")
        },
        sign_now: "Firme el pago en su monedero. No cuesta gas.",
        sending: "Enviando el pago firmado…",
        collected: "Se está cobrando su pago firmado. No tiene que hacer nada más.",
        refused: "El pago no se ha aceptado. No se ha cobrado nada.",
        too_little: "El saldo de esta cuenta no alcanza para el pago. No se ha cobrado nada.",
        cannot_sign: "Su monedero no ha podido firmar. Envíe el importe en su lugar.",
        confirm_now: "Confirme el pago en su monedero.",
        sent: "Su monedero ha enviado el pago. Aparecerá aquí en cuanto esté en la cadena de bloques; no lo envíe dos veces.",
        wallet_failed: "Su monedero ha notificado un error. Escanee el código o copie la dirección.",
    },
};
