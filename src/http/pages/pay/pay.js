// Keeps the payer's page current: countdown, copy buttons, payment with a wallet in this browser, and live updates.
// Without the script the page is complete, but does not change until it is reloaded.
'use strict';
(() => {
  const TICK_MS = 500, SOON_MS = 120000, COPIED_MS = 2000, AGAIN_MS = 20000, TIMEOUT_MS = 10000;
  const UNKNOWN_CHAIN = 4902, REFUSED = 4001;
  const main = () => document.getElementById('payment');
  const announcer = document.getElementById('announcer');
  const source = new Map();
  let ahead = 0, stream, provider = null, again = null, signingFails = false;

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
      time.textContent = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })
        .format(new Date(time.dateTime));
    }
    for (const button of part.querySelectorAll('.copy')) button.hidden = false;
    const wallet = part.querySelector('#wallet');
    const sign = part.querySelector('#sign');
    if (sign) {
      sign.hidden = !provider;
      part.querySelector('#signed').hidden = !provider;
    }
    // The plain transfer is the fallback for a token or a wallet that cannot sign.
    if (wallet) wallet.hidden = !provider || Boolean(sign) && !signingFails;
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
    const text = live ? 'This page updates by itself.' : 'Connecting…';
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
    button.textContent = 'Copied';
    button.classList.add('copied');
    announcer.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; button.classList.remove('copied'); }, COPIED_MS);
  };

  const tell = text => { const told = document.getElementById('told'); if (told) told.textContent = text; };

  // The account that pays, on the payment's chain.
  const account = async ({ chain }) => {
    const [from] = await provider.request({ method: 'eth_requestAccounts' });
    if (await provider.request({ method: 'eth_chainId' }) !== chain) {
      await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: chain }] });
    }
    return from;
  };

  const explain = (error, chainName, otherwise) => {
    if (error?.code === REFUSED) tell('You declined in your wallet; nothing was sent.');
    else if (error?.code === UNKNOWN_CHAIN) tell(`Your wallet does not know ${chainName}. Add the chain there, then try again.`);
    else tell(otherwise);
  };

  const sign = async button => {
    const { chainName, typed } = button.dataset, data = JSON.parse(typed);
    button.disabled = true;
    tell('Sign the payment in your wallet. It costs no gas.');
    try {
      const from = await account(button.dataset), message = { from, ...data.message };
      const signature = await provider.request({
        method: 'eth_signTypedData_v4', params: [from, JSON.stringify({ ...data, message })],
      });
      tell('Sending the signed payment…');
      const answer = await fetch(`${location.pathname}/authorization`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, signal: AbortSignal.timeout(TIMEOUT_MS),
        body: JSON.stringify({
          type: 'receive_with_authorization', from, value: message.value, valid_after: Number(message.validAfter),
          valid_before: Number(message.validBefore), nonce: message.nonce, signature,
        }),
      });
      if (answer.ok) {
        tell('Your signed payment is being collected. There is nothing more to do.');
        return;
      }
      const problem = await answer.json().catch(() => ({}));
      tell(`${problem.detail ?? 'The payment was not accepted.'} No money was taken.`);
    } catch (error) {
      signingFails = error?.code !== REFUSED && error?.code !== UNKNOWN_CHAIN;
      dress(main());
      explain(error, chainName, 'Your wallet could not sign. Send the amount instead.');
    }
    button.disabled = false;
  };

  const pay = async button => {
    const { chainName, to, call } = button.dataset;
    button.disabled = true;
    tell('Confirm the payment in your wallet.');
    try {
      const from = await account(button.dataset);
      await provider.request({ method: 'eth_sendTransaction', params: [{ from, to, data: call, value: '0x0' }] });
      tell('Your wallet has sent the payment. It appears here once it is in the chain; do not send it twice.');
    } catch (error) {
      explain(error, chainName, 'Your wallet reported an error. Scan the code, or copy the address.');
      button.disabled = false;
    }
  };

  document.addEventListener('click', event => {
    const button = event.target.closest('button');
    if (button?.classList.contains('copy')) copy(button);
    else if (button?.id === 'wallet' && provider) pay(button);
    else if (button?.id === 'sign' && provider) sign(button);
  });

  const offer = one => { provider ??= one; dress(main()); };
  addEventListener('eip6963:announceProvider', event => { if (event.detail?.provider) offer(event.detail.provider); });

  begin();
  dispatchEvent(new Event('eip6963:requestProvider'));
  if (window.ethereum) offer(window.ethereum);
  addEventListener('ethereum#initialized', () => { if (window.ethereum) offer(window.ethereum); }, { once: true });
  setInterval(tick, TICK_MS);
  attend();
  document.addEventListener('visibilitychange', attend);
  addEventListener('pagehide', () => stream?.close());
  addEventListener('pageshow', event => { if (event.persisted) attend(); });
})();
