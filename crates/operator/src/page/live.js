// Refreshes the operator's page: on each event of /ops/events it fetches the page's content again and changes only the
// nodes that differ, so that scroll position, focus, selection and open details are kept.
'use strict';
(() => {
  const QUIET_MS = 250, POLL_MS = 1000, STALE_MS = 6000, TIMEOUT_MS = 8000, SILENT_MS = 3000, AGAIN_POLLS = 3;
  const link = document.getElementById('link');
  let stream, busy = false, wanted = false, fetchedAt = Date.now(), heardAt = Date.now(), cut = 0;

  // There is a tick each second. If an open stream is silent, the server is gone or a proxy buffers the stream.
  const hears = () => stream?.readyState === EventSource.OPEN && Date.now() - heardAt < SILENT_MS;

  const say = () => {
    const old = Date.now() - fetchedAt;
    const state = old > STALE_MS ? 'away' : hears() ? 'live' : 'polling';
    const words = { live: 'live', polling: 'polling', away: 'disconnected' };
    if (link.textContent !== words[state]) link.textContent = words[state];
    link.dataset.state = state;
    link.dataset.age = `${Math.round(old / 1000)} s`;
    document.body.classList.toggle('stale', state === 'away');
  };

  // Key of a node: its id, or the id of the heading that labels it.
  const key = node => node.id || node.getAttribute?.('aria-labelledby') || '';

  const KEYED = '[id], [aria-labelledby]';
  const shares = (one, other) => {
    const keys = new Set([...one.querySelectorAll(KEYED)].map(key)), held = [...other.querySelectorAll(KEYED)];
    return keys.size && held.length ? held.some(node => keys.has(key(node))) : keys.size === held.length;
  };
  // Whether `one` can become `other`: nodes with a key match by key, other nodes by the keys of their descendants.
  const fits = (one, other) => one.nodeName === other.nodeName
    && (other.nodeType !== Node.ELEMENT_NODE || key(one) === key(other) && (key(other) || shares(one, other)));

  // Changes `now` into `then`, node by node. Removes nodes first, so that the remaining nodes move only if their order
  // changed: a node that moves loses the focus.
  const morph = (now, then) => {
    if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.nodeValue !== then.nodeValue) now.nodeValue = then.nodeValue;
      return;
    }
    for (const { name } of [...now.attributes]) {
      if (!then.hasAttribute(name) && !(name === 'open' && now.tagName === 'DETAILS')) now.removeAttribute(name);
    }
    for (const { name, value } of then.attributes) {
      if (now.getAttribute(name) !== value && !(name === 'open' && now.tagName === 'DETAILS')) now.setAttribute(name, value);
    }
    const free = new Set(now.childNodes);
    const pairs = [...then.childNodes].map(child => {
      for (const old of free) if (fits(old, child)) { free.delete(old); return [child, old]; }
      return [child, null];
    });
    for (const old of free) old.remove();
    let at = now.firstChild;
    for (const [child, old] of pairs) {
      if (old && old === at) at = at.nextSibling;
      else now.insertBefore(old ?? child, at);
      if (old) morph(old, child);
    }
  };

  const refresh = async () => {
    wanted = true;
    if (busy || document.hidden) return;
    busy = true;
    while (wanted && !document.hidden) {
      wanted = false;
      try {
        const answer = await fetch(location.href, {
          headers: { accept: 'text/html', 'x-fragment': 'main' }, cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS),
        });
        if (answer.status === 401) { location.reload(); return; }
        const main = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main');
        const entries = answer.headers.get('x-attention');
        if (entries !== null) {
          const count = document.getElementById('attention');
          count.textContent = entries;
          count.hidden = entries === '0';
          document.title = document.title.replace(/^\([^)]*\) /, '').replace(/^/, count.hidden ? '' : `(${entries}) `);
        }
        if (main) {
          morph(document.querySelector('main'), document.adoptNode(main));
          fetchedAt = Date.now();
        }
      } catch { /* The link status shows the age of the content. */ }
      say();
      await new Promise(done => setTimeout(done, QUIET_MS));
    }
    busy = false;
  };

  const listen = () => {
    stream?.close();
    stream = new EventSource('/ops/events');
    stream.addEventListener('hello', () => { heardAt = Date.now(); say(); });
    for (const name of ['incident', 'tick']) stream.addEventListener(name, () => { heardAt = Date.now(); refresh(); });
    stream.onopen = say;
    stream.onerror = say;
  };

  // Only a visible page listens: a browser allows few connections to one site, and each stream uses one.
  const attend = () => {
    if (document.hidden) { stream?.close(); return; }
    heardAt = Date.now();
    listen();
    refresh();
  };

  if (document.querySelector('main[data-live]')) {
    attend();
    document.addEventListener('visibilitychange', attend);
    addEventListener('pagehide', () => stream.close());
    addEventListener('pageshow', event => { if (event.persisted) attend(); });
    setInterval(() => {
      say();
      if (document.hidden || hears()) { cut = 0; return; }
      refresh();
      // A stream that is connecting needs no restart.
      if (stream.readyState !== EventSource.CONNECTING && cut++ % AGAIN_POLLS === 0) listen();
    }, POLL_MS);
  }
})();
