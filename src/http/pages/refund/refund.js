// Asks the wallet in this browser to sign the request for a refund. The form below works without the script.
'use strict';
(() => {
  const TIMEOUT_MS = 20000, REFUSED = 4001;
  const main = document.getElementById('refund');
  const words = JSON.parse(main.dataset.words);
  const errors = JSON.parse(main.dataset.errors);
  const button = document.getElementById('sign');
  const told = document.getElementById('told');
  let provider = null;

  for (const time of document.querySelectorAll('time')) {
    time.textContent = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })
      .format(new Date(time.dateTime));
  }
  if (!button) return;

  const tell = text => { told.textContent = text; };
  const show = text => {
    document.getElementById('message').hidden = false;
    document.getElementById('text').textContent = text;
  };
  const hex = text => '0x' + [...new TextEncoder().encode(text)].map(byte => byte.toString(16).padStart(2, '0')).join('');

  // Returns the answer, or null after saying why there is none.
  const post = async (what, body) => {
    try {
      const answer = await fetch(`${location.pathname}/${what}`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, signal: AbortSignal.timeout(TIMEOUT_MS),
        body: JSON.stringify(body),
      });
      if (answer.ok) return await answer.json();
      const { code } = await answer.json();
      tell(errors[code] ?? errors['']);
    } catch {
      tell(words.offline);
    }
    return null;
  };

  // A contract wallet signs for the chain that it is on. An account with a key signs anywhere.
  const change = async chainId => {
    try {
      await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId }] });
    } catch { /* The service refuses a signature for another chain. */ }
  };

  const sign = async () => {
    tell(words.connect);
    const [account] = await provider.request({ method: 'eth_requestAccounts' });
    const offered = await post('messages', { account });
    if (!offered) return;
    if (!offered.messages.length) { tell(words.stranger); return; }
    for (const { message, chain_id, ...terms } of offered.messages) {
      show(message);
      tell(words.sign);
      await change(chain_id);
      const signature = await provider.request({ method: 'personal_sign', params: [hex(message), account] });
      tell(words.sending);
      if (!await post('signed', { ...terms, account, signature })) return;
    }
    location.replace(`${location.pathname}?done=1`);
  };

  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      await sign();
    } catch (error) {
      tell(error?.code === REFUSED ? words.declined : words.failed);
    }
    button.disabled = false;
  });

  const offer = one => {
    provider ??= one;
    button.hidden = false;
    document.getElementById('no-wallet').hidden = true;
  };
  addEventListener('eip6963:announceProvider', event => { if (event.detail?.provider) offer(event.detail.provider); });
  dispatchEvent(new Event('eip6963:requestProvider'));
  if (window.ethereum) offer(window.ethereum);
  addEventListener('ethereum#initialized', () => { if (window.ethereum) offer(window.ethereum); }, { once: true });
})();
