// Keeps the payer's page current: countdown, copy buttons, payment with a wallet in this browser, and live updates.
// Without the script the page is complete, but does not change until it is reloaded. Its texts come with the page.
'use strict';
(() => {
  const TICK_MS = 500, SOON_MS = 120000, COPIED_MS = 2000, AGAIN_MS = 20000, TIMEOUT_MS = 10000;
  const UNKNOWN_CHAIN = 4902, REFUSED = 4001;
  const WALLETS_MAX = 20, NAME_CHARS_MAX = 40;
  const main = () => document.getElementById('payment');
  const announcer = document.getElementById('announcer');
  const source = new Map();
  const texts = JSON.parse(document.body.dataset.texts);
  // The reader's own variant of the page's language, for dates.
  const language = navigator.languages.find(one => one.startsWith(document.documentElement.lang)) ?? document.documentElement.lang;
  // Wallets by the id with which they announce themselves. The injected one has no name, and stands in for them.
  const wallets = new Map(), INJECTED = '';
  let ahead = 0, stream, chosen = null, again = null;

  document.documentElement.classList.add('js');

  const two = number => String(number).padStart(2, '0');
  const tick = () => {
    const left = main().querySelector('[data-until]');
    if (!left) return;
    const ms = Math.max(0, left.dataset.until - Date.now() - ahead), secs = Math.ceil(ms / 1000);
    const hours = Math.floor(secs / 3600), minutes = Math.floor(secs / 60) % 60;
    const text = hours ? `${hours}:${two(minutes)}:${two(secs % 60)}` : `${minutes}:${two(secs % 60)}`;
    const shown = left.querySelector('strong');
    if (shown.textContent !== text) shown.textContent = text;
    left.classList.toggle('soon', ms < SOON_MS);
    left.hidden = false;
  };

  // Adds what only works with the script to a part from the server.
  const dress = part => {
    for (const time of part.querySelectorAll('time')) {
      time.textContent = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' })
        .format(new Date(time.dateTime));
    }
    for (const button of part.querySelectorAll('.copy')) button.hidden = false;
    const wallet = wallets.get(chosen), pay = part.querySelector('#wallet'), sign = part.querySelector('#sign');
    if (sign) {
      sign.hidden = !wallet;
      part.querySelector('#signed').hidden = !wallet;
      name(sign, wallet, texts.sign, texts.signWith);
    }
    // The plain transfer is the fallback for a token or a wallet that cannot sign.
    if (pay) {
      pay.hidden = !wallet || Boolean(sign) && !wallet.cannotSign;
      name(pay, wallet, texts.pay, texts.payWith);
    }
    const list = part.querySelector('#wallets');
    if (list) choices(list);
  };

  const picture = icon => {
    const image = document.createElement('img');
    image.src = icon;
    image.alt = '';
    return image;
  };

  // The label of a button: the wallet's icon and name, if it has announced them.
  const name = (button, wallet, plain, named) => {
    // The replacement is a function, because a name may contain `$`.
    const text = wallet?.name ? named.replace('{wallet}', () => wallet.name) : plain;
    button.replaceChildren(...(wallet?.icon ? [picture(wallet.icon)] : []), text);
  };

  // The list of wallets, if there are several.
  const choices = list => {
    list.hidden = wallets.size < 2;
    const focused = list.contains(document.activeElement) && document.activeElement.value;
    const items = [...wallets].map(([id, { name, icon }]) => {
      const label = document.createElement('label'), radio = document.createElement('input'), text = document.createElement('span');
      Object.assign(radio, { type: 'radio', name: 'wallet', value: id, checked: id === chosen });
      text.textContent = name;
      label.append(radio, ...(icon ? [picture(icon)] : []), text);
      return label;
    });
    list.replaceChildren(list.querySelector('legend'), ...items);
    if (typeof focused === 'string') [...list.querySelectorAll('input')].find(one => one.value === focused)?.focus();
  };

  const parts = of => [...of.children].filter(one => one.id);
  const begin = () => {
    ahead = main().dataset.now - Date.now();
    for (const part of parts(main())) { source.set(part.id, part.outerHTML); dress(part); }
    tick();
  };

  // Replaces the parts that differ.
  const take = html => {
    const fresh = new DOMParser().parseFromString(html, 'text/html').getElementById('payment');
    if (!fresh) return;
    const now = main(), headline = document.getElementById('headline').textContent;
    ahead = fresh.dataset.now - Date.now();
    for (const { name } of [...now.attributes]) if (!fresh.hasAttribute(name)) now.removeAttribute(name);
    for (const { name, value } of fresh.attributes) now.setAttribute(name, value);
    const wanted = new Set(parts(fresh).map(part => part.id));
    for (const part of parts(now)) if (!wanted.has(part.id)) { source.delete(part.id); part.remove(); }
    let before = null;
    for (const part of parts(fresh).reverse()) {
      const html = part.outerHTML, there = document.getElementById(part.id);
      if (there && source.get(part.id) === html) { before = there; continue; }
      source.set(part.id, html);
      const adopted = document.adoptNode(part);
      // The chosen QR code stays.
      for (const radio of there?.querySelectorAll('input[id]:checked') ?? []) {
        const same = [...adopted.querySelectorAll('input')].find(one => one.id === radio.id);
        if (same) same.checked = true;
      }
      dress(adopted);
      if (there) there.replaceWith(adopted); else now.insertBefore(adopted, before);
      before = adopted;
    }
    const said = document.getElementById('headline').textContent;
    if (said !== headline) {
      document.title = said;
      announcer.textContent = `${said}. ${document.getElementById('explanation').textContent}`;
    }
    say();
    tick();
  };

  const say = () => {
    const link = document.getElementById('link');
    if (!link) return;
    const live = stream && stream.readyState === EventSource.OPEN;
    const text = live ? texts.live : texts.connecting;
    if (link.textContent !== text) link.textContent = text;
    link.dataset.state = live ? 'live' : 'away';
  };

  // Fallback without a stream: fetches the page from time to time.
  const look = async () => {
    again = null;
    if (document.hidden || main().hasAttribute('data-over')) return;
    try {
      const answer = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.ok) take(await answer.text());
    } catch { /* Tried again. */ }
    listen();
  };

  const listen = () => {
    stream?.close();
    if (main().hasAttribute('data-over')) return;
    stream = new EventSource(`${location.pathname}/events`);
    stream.addEventListener('page', event => take(event.data));
    stream.addEventListener('end', () => stream.close());
    stream.onopen = say;
    stream.onerror = () => {
      say();
      // Refused, not interrupted: the browser does not reconnect by itself.
      if (stream.readyState === EventSource.CLOSED && !again) again = setTimeout(look, AGAIN_MS);
    };
  };

  // Listen only while the page is visible.
  const attend = () => {
    clearTimeout(again);
    again = null;
    if (document.hidden) stream?.close(); else listen();
  };

  const copy = async button => {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // In an insecure context: select the text, and let the browser copy the selection.
      const value = button.parentElement.querySelector('.value');
      getSelection().selectAllChildren(value);
      if (!document.execCommand('copy')) return;
    }
    button.textContent = texts.copied;
    button.classList.add('copied');
    announcer.textContent = texts.copied;
    setTimeout(() => { button.textContent = texts.copy; button.classList.remove('copied'); }, COPIED_MS);
  };

  const tell = text => { const told = document.getElementById('told'); if (told) told.textContent = text; };

  // The account of a wallet that pays, on the payment's chain.
  const account = async ({ provider }, { chain }) => {
    const [from] = await provider.request({ method: 'eth_requestAccounts' });
    if (await provider.request({ method: 'eth_chainId' }) !== chain) {
      await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: chain }] });
    }
    return from;
  };

  const explain = (error, chainName, otherwise) => {
    if (error?.code === REFUSED) tell(texts.declined);
    else if (error?.code === UNKNOWN_CHAIN) tell(texts.unknownChain.replace('{chain}', chainName));
    else tell(otherwise);
  };

  const sign = async (button, wallet) => {
    const { chainName, typed } = button.dataset, data = JSON.parse(typed);
    button.disabled = true;
    tell(texts.signNow);
    try {
      const from = await account(wallet, button.dataset), message = { from, ...data.message };
      const signature = await wallet.provider.request({
        method: 'eth_signTypedData_v4', params: [from, JSON.stringify({ ...data, message })],
      });
      tell(texts.sending);
      const answer = await fetch(`${location.pathname}/authorization`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, signal: AbortSignal.timeout(TIMEOUT_MS),
        body: JSON.stringify({
          type: 'receive_with_authorization', from, value: message.value, valid_after: Number(message.validAfter),
          valid_before: Number(message.validBefore), nonce: message.nonce, signature,
        }),
      });
      if (answer.ok) {
        tell(texts.collected);
        return;
      }
      const problem = await answer.json().catch(() => ({}));
      tell(problem.code === 'authorization_balance' ? texts.tooLittle : texts.refused);
    } catch (error) {
      wallet.cannotSign = error?.code !== REFUSED && error?.code !== UNKNOWN_CHAIN;
      dress(main());
      explain(error, chainName, texts.cannotSign);
    }
    button.disabled = false;
  };

  const pay = async (button, wallet) => {
    const { chainName, to, call } = button.dataset;
    button.disabled = true;
    tell(texts.confirmNow);
    try {
      const from = await account(wallet, button.dataset);
      await wallet.provider.request({ method: 'eth_sendTransaction', params: [{ from, to, data: call, value: '0x0' }] });
      tell(texts.sent);
    } catch (error) {
      explain(error, chainName, texts.walletFailed);
      button.disabled = false;
    }
  };

  document.addEventListener('click', event => {
    const button = event.target.closest('button');
    if (button?.classList.contains('copy')) copy(button);
    else if (button?.id === 'wallet' && wallets.has(chosen)) pay(button, wallets.get(chosen));
    else if (button?.id === 'sign' && wallets.has(chosen)) sign(button, wallets.get(chosen));
  });

  document.addEventListener('change', event => {
    if (event.target.name !== 'wallet') return;
    chosen = event.target.value;
    tell('');
    dress(main());
  });

  const add = (id, wallet) => {
    wallets.set(id, wallet);
    if (!wallets.has(chosen)) chosen = id;
    dress(main());
  };

  // A wallet that announces itself (EIP-6963). Only icons in data: URIs are shown, as images, which run no scripts.
  const discover = ({ detail }) => {
    const { info, provider } = detail ?? {};
    if (typeof info?.uuid !== 'string' || !info.uuid || typeof info.name !== 'string' || typeof provider?.request !== 'function') return;
    if (wallets.has(info.uuid) || wallets.size >= WALLETS_MAX) return;
    wallets.delete(INJECTED);
    const isPicture = typeof info.icon === 'string' && info.icon.startsWith('data:image/');
    add(info.uuid, { provider, name: info.name.slice(0, NAME_CHARS_MAX), icon: isPicture ? info.icon : '' });
  };

  // A wallet that does not announce itself.
  const fallBack = () => { if (window.ethereum && !wallets.size) add(INJECTED, { provider: window.ethereum, name: '', icon: '' }); };

  begin();
  addEventListener('eip6963:announceProvider', discover);
  dispatchEvent(new Event('eip6963:requestProvider'));
  fallBack();
  addEventListener('ethereum#initialized', fallBack, { once: true });
  setInterval(tick, TICK_MS);
  attend();
  document.addEventListener('visibilitychange', attend);
  addEventListener('pagehide', () => stream?.close());
  addEventListener('pageshow', event => { if (event.persisted) attend(); });
})();
