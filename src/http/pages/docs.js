"use strict";
// The renderer contains zod, which would try `eval` first. The policy of the page forbids it.
globalThis.__zod_globalConfig = { jitless: true };
addEventListener("DOMContentLoaded", () => {
  Scalar.createApiReference("#app", {
    url: "/openapi.json",
    documentDownloadType: "json",
    defaultOpenAllTags: true,
    // Nothing from another host.
    withDefaultFonts: false,
    telemetry: false,
    agent: { disabled: true },
    mcp: { disabled: true },
    hideClientButton: true,
    showDeveloperTools: "never",
    // Examples in curl, JavaScript (fetch, undici) and Python (requests, http.client).
    defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
    hiddenClients: {
      c: true, clojure: true, csharp: true, dart: true, fsharp: true, go: true, http: true, java: true, kotlin: true,
      objc: true, ocaml: true, php: true, powershell: true, r: true, ruby: true, rust: true, swift: true,
      shell: ["wget", "httpie"],
      js: ["axios", "jquery", "ofetch", "xhr"],
      node: ["axios", "fetch", "ofetch"],
      python: ["aiohttp", "httpx_sync", "httpx_async"],
    },
  });
});
