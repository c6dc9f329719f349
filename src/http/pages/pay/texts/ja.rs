//! Japanese.

use super::{Contact, ScriptTexts, Texts};

/// The party.
fn them(contact: Contact) -> &'static str {
    contact.pick("販売者", "このリンクの送信者")
}

pub(super) static TEXTS: Texts = Texts {
    waiting: (
        "お支払いをお待ちしています",
        "この金額を、表示されているアドレスへ正確に送金してください。着金はこのページに表示されます。",
    ),
    choose: (
        "チェーンを選択してください",
        "次のいずれのチェーンでもお支払いいただけます。資金のあるチェーンをお選びください。選択後の変更はできません。",
    ),
    part_seen: "一部の着金を検出しました",
    part_seen_text: |seen, due, missing| {
        format!(
            "{due} のうち {seen} を検出しましたが、まだ確定していません。{missing} が不足しています。期限内に同じアドレスへ送金してください。"
        )
    },
    seen: "着金を検出しました",
    seen_text: |amount| {
        format!("{amount} の送金が届き、ブロックチェーンで確認中です。これ以上の操作は必要ありません。")
    },
    rest_seen_text: "残りの送金が届き、ブロックチェーンで確認中です。これ以上の操作は必要ありません。",
    checked: (
        "お支払いを確認しています",
        "送金が届き、現在審査中です。しばらく時間がかかることがあります。お客様の操作は必要ありません。再度のお支払いはしないでください。",
    ),
    chain_waits: (
        "ブロックチェーンを待っています",
        "送金を検出しましたが、そのブロックがチェーンから外れました。通常は数分以内に再び取り込まれます。まだ再度のお支払いはしないでください。",
    ),
    time_up: (
        "お支払い期限を過ぎました",
        "お支払いの期限が過ぎました。期限内に送られた送金がないか、引き続き確認しています。今は送金しないでください。",
    ),
    signed: "署名を受け付けました",
    signed_text: |amount| format!("署名された {amount} のお支払いを処理しています。これ以上の操作は必要ありません。"),
    signed_checked_text: "署名されたお支払いは現在審査中です。しばらく時間がかかることがあります。お客様の操作は必要ありません。\
                          再度のお支払いはしないでください。",
    confirmed: (
        "お支払いが確定しました",
        "ありがとうございます。お支払いは確定しました。これ以上の操作は必要ありません。",
    ),
    complete: "お支払いが完了しました",
    complete_text: |contact| {
        let recipient = contact.pick("販売者", "受取人");
        format!("ありがとうございます。お支払いは届き、{recipient}へ送られました。")
    },
    incomplete: "お支払いが不足しています",
    incomplete_text: |received, due, missing| {
        format!(
            "{due} のうち {received} が届きました。{missing} が不足しています。期限内に同じアドレスへ送金してください。"
        )
    },
    underpaid_text: |received, due, contact| {
        let them = them(contact);
        format!(
            "期限内に届いたのは {due} のうち {received} です。{them}に通知しました。{them}が受領または返金を行います。\
             {them}にお問い合わせください。これ以上送金しないでください。"
        )
    },
    late: "着金が期限に間に合いませんでした",
    late_text: |contact| {
        let them = them(contact);
        format!(
            "お支払い期限の後に着金しました。{them}に通知しました。{them}が受領または返金を行います。{them}にお問い合わせください。\
             再度のお支払いはしないでください。"
        )
    },
    overpaid: "請求額より多く届きました",
    overpaid_text: |received, due, contact| {
        let them = them(contact);
        format!(
            "{due} のところ {received} が届きました。{them}に通知しました。{them}が受領または返金を行います。\
             お客様のお支払いは必要ありません。"
        )
    },
    mismatched: "お支払いの内容が一致しません",
    mismatched_text: |contact| {
        let them = them(contact);
        format!(
            "届いた送金が請求内容と一致しません。{them}に通知しました。{them}にお問い合わせください。これ以上送金しないでください。"
        )
    },
    expired: "お支払いの期限が切れました",
    expired_text: |contact| {
        let them = them(contact);
        format!(
            "お支払いの期限が過ぎました。送金せずに、{them}に新しいリンクを依頼してください。送金した直後の場合は{them}に\
             お問い合わせください。資金は失われていません。"
        )
    },
    cancelled: "お支払いがキャンセルされました",
    cancelled_text: |contact| format!("{}がこのお支払いをキャンセルしました。送金しないでください。", them(contact)),
    blocked_text: |contact| {
        format!(
            "届いた資金は審査中で、このお支払いを完了できません。これ以上送金せずに、{}にお問い合わせください。",
            them(contact)
        )
    },
    sent_back: "お支払いは返金されます",
    sent_back_text: |contact| {
        let them = them(contact);
        format!(
            "このお支払いは完了できなかったため、{them}が返金します。再度お支払いになる前に、{them}にお問い合わせください。"
        )
    },
    failed: "お支払いに失敗しました",
    failed_text: |contact| format!("送金せずに、{}にお問い合わせください。", them(contact)),

    signature_used: "前回の署名は使用されませんでした。取り消されたか、別の場所で使用されたためです。引き落としは行われていません。\
                     もう一度お支払いいただけます。",
    signature_refused: "前回の署名は使用されませんでした。このアカウントは利用できません。引き落としは行われていません。\
                        もう一度お支払いいただけます。",
    signature_expired: "前回の署名は期限切れのため使用されませんでした。引き落としは行われていません。もう一度お支払いいただけます。",
    wrong_token: |token, contact| {
        format!(
            "請求された {token} とは異なるトークンが届きました。このお支払いには充当されません。返金については{}にお問い合わせください。",
            them(contact)
        )
    },
    wrong_chain: |chain, contact| {
        format!(
            "{chain} とは異なるチェーンで着金しました。このお支払いには充当されません。返金については{}にお問い合わせください。",
            them(contact)
        )
    },
    under_check: "届いた送金の一つが審査中です。完了するまで充当されません。",
    under_check_contact: |contact| {
        format!("届いた送金の一つが審査中です。完了するまで充当されません。{}にお問い合わせください。", them(contact))
    },
    excess: |amount, contact| {
        let them = them(contact);
        format!("お支払いの完了後に {amount} が届きました。{them}に通知しました。{them}が返金できます。")
    },
    refund_held: |amount| format!("{amount} は審査の後に返金されます。"),
    refund_going: |amount| format!("{amount} を返金しています。"),
    refund_sent: |amount| format!("{amount} を返金しました。"),

    test: ("テスト", "実際の資金を送らないでください。"),
    on_chain: |chain| format!("（{chain}）"),
    time_left: ("残り ", ""),
    pay_until: ("お支払い期限：", ""),
    progress: "進行状況",
    steps: ["お支払い待ち", "着金を検出", "確定", "完了"],
    step_done: "（済み）",
    confirmations: |have, required| format!("承認 {have}／{required}"),
    waits_for_finality: "チェーン上での確定を待っています",
    reload: "再読み込みして最新の状態を表示する",
    get_money_back: "返金を依頼する",
    return_to: |name| format!("{name} に戻る"),

    choose_chain: |chain| format!("{chain} で支払う"),
    scan: "ウォレットアプリで読み取ってください",
    code_choice: "QRコードの内容",
    code_request: "支払い請求",
    code_address: "アドレスのみ",
    code_request_label: |amount, chain, address| format!("QRコード：{chain} で {amount} を {address} へ送金"),
    code_address_label: |address| format!("QRコード：{address}"),
    code_address_hint: |amount, chain| format!("アプリで {chain} を選び、{amount} を正確に入力してください。"),
    to_send: "送金内容",
    send_exactly: "送金額（正確に）",
    on_the_chain: "チェーン",
    to_this_address: "送金先アドレス",
    token_contract: |token| format!("{token} のトークンコントラクト"),
    copy: "コピー",
    copy_amount: "金額をコピー",
    copy_address: "アドレスをコピー",
    copy_contract: "コントラクトをコピー",
    wallets: "このブラウザーのウォレット",
    open_in_app: "ウォレットアプリで開く",
    only: |token, chain| format!("{chain} の {token} のみを送金してください。"),
    only_why: |contact| {
        format!(
            "他のトークンやチェーンでの送金は、このお支払いに充当されません。返金については{}にお問い合わせください。",
            them(contact)
        )
    },
    what_you_sign: "署名する内容",
    sign_text: |amount| {
        let before = format!(
            "このお支払いのために、支払いコントラクトがお客様のアカウントから {amount} だけを受け取ることを許可するメッセージです。有効期限："
        );
        (before, "。ガス代のコインは必要ありません。")
    },
    sign_message: "メッセージ",
    sign_to: "宛先",
    sign_value: "値（最小単位）",
    sign_nonce: "ナンス",

    arrived: "届いた送金",
    counted: |received, due| format!("このお支払いへの充当額：{due} のうち {received}"),
    unknown_token: |amount| format!("不明なトークン {amount}"),
    transfer_orphaned: "チェーンから外れました",
    transfer_stray: "このお支払いには充当されません",
    transfer_confirmed: "確定済み",
    transfer_seen: "確認中",
    transfer_checked: "審査中",
    transaction: "取引",
    settlement: "送付：",

    not_found: (
        "お支払いが見つかりません",
        "このリンクに対応するお支払いはありません。リンクの送信者に新しいリンクを依頼してください。",
    ),
    too_many: ("リクエストが多すぎます", "1分ほど待ってから再読み込みしてください。"),
    unavailable: ("ご利用いただけません", "現在このページを表示できません。しばらくしてから再読み込みしてください。"),

    script: ScriptTexts {
        live: "このページは自動的に更新されます。",
        connecting: "接続しています…",
        copied: "コピーしました",
        pay: "このブラウザーのウォレットで支払う",
        pay_with: |wallet| format!("{wallet} で支払う"),
        sign: "このブラウザーのウォレットで支払う（ガス代不要）",
        sign_with: |wallet| format!("{wallet} で支払う（ガス代不要）"),
        declined: "ウォレットで拒否されました。何も送金されていません。",
        unknown_chain: |chain| {
            format!("お使いのウォレットは {chain} に対応していません。チェーンを追加してから、もう一度お試しください。")
        },
        sign_now: "ウォレットでお支払いに署名してください。ガス代はかかりません。",
        sending: "署名されたお支払いを送信しています…",
        collected: "署名されたお支払いを処理しています。これ以上の操作は必要ありません。",
        refused: "お支払いは受け付けられませんでした。引き落としは行われていません。",
        too_little: "このアカウントの残高が不足しています。引き落としは行われていません。",
        cannot_sign: "ウォレットで署名できませんでした。代わりに金額を送金してください。",
        confirm_now: "ウォレットでお支払いを承認してください。",
        sent: "ウォレットから送金されました。チェーンに取り込まれるとここに表示されます。二重に送金しないでください。",
        wallet_failed: "ウォレットでエラーが発生しました。コードを読み取るか、アドレスをコピーしてください。",
    },
};
