//! Portuguese.

use super::{Contact, ScriptTexts, Texts};

/// The party at the beginning of a sentence.
fn they(contact: Contact) -> &'static str {
    contact.pick("O lojista", "O remetente deste link")
}

/// The party in the middle of a sentence.
fn them(contact: Contact) -> &'static str {
    contact.pick("o lojista", "o remetente deste link")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "Aguardando o seu pagamento",
        "Envie exatamente este valor para o endereço indicado. Você verá nesta página quando ele chegar.",
    ),
    choose: (
        "Escolha uma blockchain",
        "Você pode pagar em qualquer uma destas blockchains. Escolha aquela em que está o dinheiro; a escolha não pode ser alterada.",
    ),
    part_seen: "Parte do pagamento foi detectada",
    part_seen_text: |seen, due, missing| {
        format!(
            "{seen} de {due} foram detectados e ainda não contam. Faltam {missing}: envie esse valor para o mesmo endereço \
             dentro do prazo."
        )
    },
    seen: "Pagamento detectado",
    seen_text: |amount| {
        format!(
            "A sua transferência de {amount} chegou e está sendo confirmada pela blockchain. Não é preciso fazer mais nada."
        )
    },
    rest_seen_text: "O restante do seu pagamento chegou e está sendo confirmado pela blockchain. Não é preciso fazer mais nada.",
    checked: (
        "Pagamento em análise",
        "A sua transferência chegou e está em análise, o que pode demorar um pouco. Você não precisa fazer nada; não pague \
         de novo.",
    ),
    chain_waits: (
        "Aguardando a blockchain",
        "A sua transferência tinha sido detectada, mas a blockchain descartou o bloco dela. Normalmente ela reaparece em \
         poucos minutos; por enquanto, não pague de novo.",
    ),
    time_up: (
        "O tempo acabou",
        "O prazo para pagar terminou. Ainda verificamos se chegam transferências enviadas a tempo; não envie nada agora.",
    ),
    signed: "Pagamento assinado",
    signed_text: |amount| {
        format!("O seu pagamento assinado de {amount} está sendo cobrado. Não é preciso fazer mais nada.")
    },
    signed_checked_text: "O seu pagamento assinado está em análise, o que pode demorar um pouco. Você não precisa fazer nada; não \
                          pague de novo.",
    confirmed: ("Pagamento confirmado", "Obrigado. O seu pagamento é definitivo; não é preciso fazer mais nada."),
    complete: "Pagamento concluído",
    complete_text: |contact| {
        let recipient = contact.pick("ao lojista", "ao destinatário");
        format!("Obrigado. O seu pagamento chegou e foi repassado {recipient}.")
    },
    incomplete: "Pagamento incompleto",
    incomplete_text: |received, due, missing| {
        format!(
            "Chegaram {received} de {due}. Faltam {missing}: envie esse valor para o mesmo endereço dentro do prazo."
        )
    },
    underpaid_text: |received, due, contact| {
        format!(
            "Chegaram a tempo {received} de {due}. {} foi avisado e vai aceitar o valor ou devolvê-lo. Fale com {}; não \
             envie mais nada.",
            they(contact),
            them(contact)
        )
    },
    late: "O pagamento chegou atrasado",
    late_text: |contact| {
        format!(
            "O dinheiro chegou depois do fim do prazo para pagar. {} foi avisado e vai aceitá-lo ou devolvê-lo. Fale com \
             {}; não pague de novo.",
            they(contact),
            them(contact)
        )
    },
    overpaid: "Chegou mais do que o valor devido",
    overpaid_text: |received, due, contact| {
        format!(
            "Chegaram {received} em vez de {due}. {} foi avisado e vai aceitar o valor ou devolver dinheiro. Você não \
             precisa pagar nada.",
            they(contact)
        )
    },
    mismatched: "O pagamento não confere",
    mismatched_text: |contact| {
        format!(
            "O dinheiro recebido não corresponde ao pedido. {} foi avisado. Fale com {}; não envie mais nada.",
            they(contact),
            them(contact)
        )
    },
    expired: "Pagamento expirado",
    expired_text: |contact| {
        format!(
            "O prazo para pagar terminou. Não envie nada; peça um novo link {}. Se você acabou de enviar dinheiro, fale com \
             {}: ele não está perdido.",
            contact.pick("ao lojista", "ao remetente deste link"),
            them(contact)
        )
    },
    cancelled: "Pagamento cancelado",
    cancelled_text: |contact| format!("{} cancelou este pagamento. Não envie nada.", they(contact)),
    blocked_text: |contact| {
        format!(
            "O dinheiro recebido está em análise e este pagamento não pode ser concluído. Não envie mais nada; fale com {}.",
            them(contact)
        )
    },
    sent_back: "Pagamento devolvido",
    sent_back_text: |contact| {
        let them = them(contact);
        format!(
            "Este pagamento não pôde ser concluído, e {them} vai devolvê-lo. Fale com {them} antes de pagar de novo."
        )
    },
    failed: "O pagamento falhou",
    failed_text: |contact| format!("Não envie nada; fale com {}.", them(contact)),

    signature_used: "A sua última assinatura não foi usada: ela foi cancelada ou usada em outro lugar. Nada foi cobrado; você \
                     pode pagar de novo.",
    signature_refused: "A sua última assinatura não foi usada: esta conta não pode ser utilizada. Nada foi cobrado; você pode \
                        pagar de novo.",
    signature_expired: "A sua última assinatura não foi usada: ela expirou. Nada foi cobrado; você pode pagar de novo.",
    wrong_token: |token, contact| {
        format!(
            "Chegou um token diferente de {token}, que não conta para este pagamento. Fale com {} para recebê-lo de volta.",
            them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "Chegou dinheiro em uma blockchain diferente de {chain}, que não conta para este pagamento. Fale com {} para \
             recebê-lo de volta.",
            them(contact)
        )
    },
    under_check: "Uma transferência recebida está em análise e não conta até lá.",
    under_check_contact: |contact| {
        format!("Uma transferência recebida está em análise e não conta até lá. Fale com {}.", them(contact))
    },
    excess: |amount, contact| {
        format!(
            "Chegaram {amount} depois da conclusão do pagamento. {} foi avisado e pode devolver esse valor.",
            they(contact)
        )
    },
    refund_held: |amount| format!("{amount} serão devolvidos após uma análise."),
    refund_going: |amount| format!("A devolução de {amount} está a caminho."),
    refund_sent: |amount| format!("{amount} foram devolvidos."),

    test: ("TESTE", "Não envie dinheiro de verdade."),
    on_chain: |chain| format!("em {chain}"),
    time_left: ("faltam ", ""),
    pay_until: ("Pague até ", ""),
    progress: "Progresso",
    steps: ["Aguardando o pagamento", "Pagamento detectado", "Confirmado", "Concluído"],
    step_done: "(feito)",
    confirmations: |have, required| format!("{have} de {required} confirmações"),
    waits_for_finality: "aguardando a blockchain torná-lo definitivo",
    reload: "Recarregue a página para ver o estado atual.",
    get_money_back: "Receber o dinheiro de volta",
    return_to: |name| format!("Voltar para {name}"),

    choose_chain: |chain| format!("Pagar em {chain}"),
    scan: "Escaneie com um aplicativo de carteira",
    code_choice: "Conteúdo do código QR",
    code_request: "Pedido de pagamento",
    code_address: "Só o endereço",
    code_request_label: |amount, chain, address| format!("Código QR: enviar {amount} em {chain} para {address}"),
    code_address_label: |address| format!("Código QR: {address}"),
    code_address_hint: |amount, chain| format!("No aplicativo, escolha {chain} e informe exatamente {amount}."),
    to_send: "Dados do pagamento",
    send_exactly: "Valor exato",
    on_the_chain: "Na blockchain",
    to_this_address: "Para este endereço",
    token_contract: |token| format!("Contrato do token {token}"),
    copy: "Copiar",
    copy_amount: "Copiar o valor",
    copy_address: "Copiar o endereço",
    copy_contract: "Copiar o contrato",
    wallets: "Carteiras neste navegador",
    open_in_app: "Abrir em um aplicativo de carteira",
    only: |token, chain| format!("Envie somente {token} em {chain}."),
    only_why: |contact| {
        format!(
            "Outro token ou outra blockchain não contam para este pagamento; para receber o dinheiro de volta, fale com {}.",
            them(contact)
        )
    },
    what_you_sign: "O que você assina",
    sign_text: |amount| {
        let before = format!(
            "Uma mensagem que permite ao contrato de pagamento cobrar {amount} da sua conta para este pagamento, e nada \
             mais, até "
        );
        (before, ". Você não precisa de moedas para o gás.")
    },
    sign_message: "Mensagem",
    sign_to: "Para",
    sign_value: "Valor (menores unidades)",
    sign_nonce: "Nonce",

    arrived: "Transferências recebidas",
    counted: |received, due| format!("Contado para este pagamento: {received} de {due}"),
    unknown_token: |amount| format!("{amount} de um token desconhecido"),
    transfer_orphaned: "descartada pela blockchain",
    transfer_stray: "não conta para este pagamento",
    transfer_confirmed: "confirmada",
    transfer_seen: "em confirmação",
    transfer_checked: "em análise",
    transaction: "Transação",
    settlement: "Repassado:",

    not_found: ("Pagamento não encontrado", "Não há pagamento para este link. Peça um novo a quem o enviou."),
    too_many: ("Muitas solicitações", "Espere um minuto e recarregue a página."),
    unavailable: ("Indisponível", "A página não pode ser exibida no momento. Recarregue-a daqui a pouco."),

    script: ScriptTexts {
        live: "Esta página se atualiza sozinha.",
        connecting: "Conectando…",
        copied: "Copiado",
        pay: "Pagar com a carteira deste navegador",
        pay_with: |wallet| format!("Pagar com {wallet}"),
        sign: "Pagar com a carteira deste navegador, sem gás",
        sign_with: |wallet| format!("Pagar com {wallet}, sem gás"),
        declined: "Você recusou na sua carteira; nada foi enviado.",
        unknown_chain: |chain| format!("A sua carteira não conhece {chain}. Adicione essa blockchain e tente de novo."),
        sign_now: "Assine o pagamento na sua carteira. Isso não custa gás.",
        sending: "Enviando o pagamento assinado…",
        collected: "O seu pagamento assinado está sendo cobrado. Não é preciso fazer mais nada.",
        refused: "O pagamento não foi aceito. Nada foi cobrado.",
        too_little: "O saldo desta conta não é suficiente para o pagamento. Nada foi cobrado.",
        cannot_sign: "A sua carteira não conseguiu assinar. Em vez disso, envie o valor.",
        confirm_now: "Confirme o pagamento na sua carteira.",
        sent: "A sua carteira enviou o pagamento. Ele aparece aqui assim que estiver na blockchain; não o envie duas vezes.",
        wallet_failed: "A sua carteira informou um erro. Escaneie o código ou copie o endereço.",
    },
};
