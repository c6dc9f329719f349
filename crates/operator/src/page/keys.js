// Keys, the theme, and buttons that copy.
(() => {
  const root = document.documentElement;
  root.classList.add('js');

  // The server sets the theme of the next page, so that it never flashes.
  const THEMES = ['', 'dark', 'light'], YEAR_SECS = 31536000;
  const theme = document.getElementById('theme');
  const nameTheme = () => { theme.textContent = root.dataset.theme || 'auto'; };
  theme.addEventListener('click', () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || '') + 1) % THEMES.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    document.cookie = `payferry_theme=${next}; path=/ops; max-age=${YEAR_SECS}; samesite=strict`;
    nameTheme();
  });
  nameTheme();

  document.addEventListener('click', async event => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = '✓';
    } catch { button.textContent = '✗'; }
    setTimeout(() => { button.textContent = '⧉'; }, 1200);
  });

  const help = document.getElementById('help');
  document.getElementById('key-help').addEventListener('click', () => help.showModal());

  // Rows of tables and lists, each by its first link.
  const step = by => {
    const rows = [...document.querySelectorAll('main tbody tr, main ol.log > li')].filter(row => row.querySelector('a'));
    if (!rows.length) return;
    const at = rows.findIndex(row => row.contains(document.activeElement));
    const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[next].querySelector('a').focus();
  };

  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, select, textarea')) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const keys = {
      '/': () => document.getElementById('search').focus(),
      j: () => step(1),
      k: () => step(-1),
      '?': () => help.open ? help.close() : help.showModal(),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
