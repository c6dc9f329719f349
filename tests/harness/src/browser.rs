//! A real browser: headless Chromium with its own profile, driven like a user would.
//!
//! Every wait is bounded, and dropping the browser ends its processes. `tests/tools` installs Chromium and its driver;
//! a test fails with that hint when they are missing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::common::capabilities::chromium::ChromiumLikeCapabilities;
use thirtyfour::error::WebDriverResult;
use thirtyfour::{By, CapabilitiesHelper, DesiredCapabilities, WebDriver, WebElement};

use crate::process::KilledOnDrop;
use crate::{eventually, expect, install_tls};

/// Maximum number of attempts to start the driver: it sometimes exits at once. It chooses its own port.
const DRIVER_STARTS_MAX: usize = 3;
/// Maximum time of one driver command, including loading a page.
const COMMAND_PATIENCE: Duration = Duration::from_mins(1);
/// Text in the driver's ready message, followed by its port.
const READY: &str = "started successfully on port ";

/// The browser's own sandbox does not work as root. The other flags stop background requests of the browser.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    // Every other host name fails to resolve.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// The same fonts on every machine, because pictures are compared by eye. Others are used only for characters that these lack.
const FONTS: &str = r#"<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <match target="pattern"><edit name="family" mode="append_last"><string>Inter</string></edit></match>
</fontconfig>
"#;

/// A browser with one page.
pub struct Browser {
    // Fields are dropped in this order: the session, the driver with its child processes, the profile.
    driver: WebDriver,
    // Chromium exits with its parent.
    _process: KilledOnDrop,
    _profile: TempDir,
}

/// Starts the driver and returns its port; `None` if it exited or timed out.
fn start_driver(fonts: &Path) -> Option<(KilledOnDrop, String)> {
    let program = std::env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
    let mut command = Command::new(&program);
    command.arg("--port=0").env("FONTCONFIG_FILE", fonts).env("TZ", "UTC");
    let port = |line: &str| Some(line.split_once(READY)?.1.trim_end_matches('.').to_owned());
    KilledOnDrop::spawn_until(command.stderr(Stdio::null()), port).unwrap_or_else(|error| {
            panic!("the Chromium driver cannot be started ({program}: {error}); run tests/tools to install it, or set CHROMEDRIVER")
    })
}

impl Browser {
    /// Starts a browser.
    pub async fn start() -> Self {
        Self::launch(true).await
    }

    /// Starts a browser that runs no JavaScript.
    pub async fn without_javascript() -> Self {
        Self::launch(false).await
    }

    async fn launch(runs_scripts: bool) -> Self {
        install_tls();
        let profile = tempfile::tempdir().unwrap();
        let fonts = profile.path().join("fonts.conf");
        std::fs::write(&fonts, FONTS).unwrap();
        let (process, port) = (0..DRIVER_STARTS_MAX)
            .find_map(|_| start_driver(&fonts))
            .expect("no attempt to start the Chromium driver reported that it was ready");
        let driver = WebDriver::builder(format!("http://127.0.0.1:{port}"), capabilities(profile.path(), runs_scripts))
            .request_timeout(COMMAND_PATIENCE)
            .connect()
            .await
            .unwrap_or_else(|error| panic!("Chromium did not start ({error}); run tests/tools to install it"));
        Self { driver, _process: process, _profile: profile }
    }

    /// Opens a URL and waits until the page is loaded.
    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Reloads the page.
    pub async fn reload(&self) {
        self.driver.refresh().await.unwrap();
    }

    /// Path of the current URL.
    pub async fn path(&self) -> String {
        self.driver.current_url().await.unwrap().path().to_owned()
    }

    /// HTTP status of the page.
    pub async fn status(&self) -> i64 {
        let answer = self.run("return performance.getEntriesByType('navigation')[0].responseStatus").await;
        answer.as_i64().unwrap()
    }

    /// Sets the window size in CSS pixels, and the device pixels per CSS pixel.
    pub async fn resize(&self, width: u32, height: u32, dots: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": dots, "mobile": false});
        self.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Sets the user's preferred colour scheme.
    pub async fn prefer_dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.cdp("Emulation.setEmulatedMedia", media).await;
    }

    /// Sets the user's preferred languages, as in `Accept-Language`, for pages opened from now on.
    pub async fn prefer_languages(&self, languages: &str) {
        let agent = self.run("return navigator.userAgent").await;
        let preferred = json!({"userAgent": agent, "acceptLanguage": languages});
        self.cdp("Emulation.setUserAgentOverride", preferred).await;
    }

    /// Runs a script in every page opened from now on, before the page's own scripts.
    pub async fn run_first(&self, script: &str) {
        self.cdp("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Runs a script and returns its result.
    pub async fn run(&self, script: &str) -> Value {
        let answer = self.driver.execute(script, Vec::new()).await;
        answer.unwrap_or_else(|error| panic!("{script}: {error}")).json().clone()
    }

    /// Visible text of the first element that matches the selector; `None` if there is none.
    pub async fn text(&self, css: &str) -> Option<String> {
        self.try_text(css).await.unwrap_or_default()
    }

    async fn try_text(&self, css: &str) -> WebDriverResult<Option<String>> {
        match self.driver.find_all(By::Css(css)).await?.first() {
            Some(element) => Ok(Some(element.text().await?)),
            None => Ok(None),
        }
    }

    /// Number of elements that match the selector.
    pub async fn count(&self, css: &str) -> usize {
        self.driver.find_all(By::Css(css)).await.unwrap().len()
    }

    /// Waits until the element's text satisfies `wanted`, and returns the text. The page may replace the element
    /// meanwhile.
    pub async fn until(&self, css: &str, wanted: impl Fn(&str) -> bool) -> String {
        let look = async || match self.text(css).await {
            Some(text) if wanted(&text) => Ok(text),
            text => Err(format!("{text:?}")),
        };
        eventually(format!("{css} has the expected text"), look).await
    }

    /// Waits until this number of elements match the selector.
    pub async fn until_count(&self, css: &str, wanted: usize) {
        let look = async || expect(self.count(css).await, |count| *count == wanted);
        eventually(format!("{css} matches {wanted} elements"), look).await;
    }

    /// Clicks the first element that matches the selector, once it exists. Returns after a page opened by the click is
    /// loaded.
    pub async fn click(&self, css: &str) {
        self.when_there(css, async |element| element.click().await).await;
    }

    /// Types into a field, once it exists.
    pub async fn fill(&self, css: &str, text: &str) {
        self.when_there(css, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        })
        .await;
    }

    /// Chooses a file in a field, once it exists.
    pub async fn upload(&self, css: &str, file: &Path) {
        self.when_there(css, async |element| element.send_keys(file.to_str().unwrap()).await).await;
    }

    /// Types a key into whatever has the focus.
    pub async fn press(&self, key: &str) {
        self.driver.active_element().await.unwrap().send_keys(key).await.unwrap();
    }

    /// Violations of accessibility rules that axe finds on the page, each with its elements. `axe` is the source of axe-core.
    pub async fn violations(&self, axe: &str) -> Vec<String> {
        let script = format!(
            "{axe}; const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations.map(one => \
             one.id + ': ' + one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | '))))"
        );
        let found = self.driver.execute_async(script, Vec::new()).await.unwrap();
        found.json().as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// Acts on an element; retries if the page replaced it meanwhile.
    async fn when_there(&self, css: &str, act: impl AsyncFn(WebElement) -> WebDriverResult<()>) {
        eventually(format!("{css} is there"), async || act(self.driver.find(By::Css(css)).await?).await).await;
    }

    /// Browser console entries since the last call: failed requests, blocked scripts and styles, uncaught errors, and
    /// messages of the page.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.driver.browser_log().await.unwrap();
        entries.into_iter().map(|entry| format!("{}: {}", entry.level, entry.message)).collect()
    }

    /// Saves a PNG picture of the whole page at its full height.
    pub async fn picture(&self, path: &Path) {
        let size = self.run("const r = document.documentElement; return [r.clientWidth, r.scrollHeight]").await;
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip, "optimizeForSpeed": false});
        let answer = self.cdp("Page.captureScreenshot", shot).await;
        let png = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, answer["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, png).unwrap();
    }

    /// Ends the session.
    pub async fn close(self) {
        self.driver.quit().await.unwrap();
    }

    async fn cdp(&self, method: &str, params: Value) -> Value {
        self.driver.cdp().send_raw(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }
}

fn capabilities(profile: &Path, runs_scripts: bool) -> thirtyfour::ChromeCapabilities {
    let mut wanted = DesiredCapabilities::chrome();
    for flag in FLAGS {
        wanted.add_arg(flag).unwrap();
    }
    wanted.add_arg(&format!("--user-data-dir={}", profile.join("profile").display())).unwrap();
    if let Ok(browser) = std::env::var("CHROMIUM") {
        wanted.set_binary(&browser).unwrap();
    }
    if !runs_scripts {
        let never = json!({"profile.managed_default_content_settings.javascript": 2});
        wanted.add_experimental_option("prefs", never).unwrap();
    }
    wanted.set("goog:loggingPrefs", json!({"browser": "ALL"})).unwrap();
    wanted
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::header::CONTENT_SECURITY_POLICY;
    use axum::response::Html;
    use axum::routing::get;
    use payferry_testkit::stub::serve;

    use super::*;

    /// Serves a page with this script policy on its own port.
    async fn page(policy: &'static str) -> String {
        let html = Html(
            "<!DOCTYPE html><html lang=en><title>t</title><link rel=icon href='data:,'><h1>as served</h1>\
             <script>document.querySelector('h1').textContent = 'as scripted'</script>",
        );
        serve(Router::new().route("/", get(async move || ([(CONTENT_SECURITY_POLICY, policy)], html)))).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn runs_scripts_takes_pictures_and_reports_refused_scripts() {
        let browser = Browser::start().await;
        browser.open(&page("script-src 'unsafe-inline'").await).await;
        browser.until("h1", |text| text == "as scripted").await;
        assert_eq!(browser.status().await, 200);
        assert_eq!(browser.complaints().await, Vec::<String>::new());

        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("some/where/page.png");
        browser.resize(400, 300, 2).await;
        browser.picture(&picture).await;
        let png = std::fs::read(picture).unwrap();
        // The PNG header has the width after the signature and the chunk's name.
        assert_eq!(png[16..20], 800_u32.to_be_bytes());

        browser.open(&page("script-src 'none'").await).await;
        assert_eq!(browser.text("h1").await.as_deref(), Some("as served"));
        let complaints = browser.complaints().await;
        assert!(complaints.iter().any(|complaint| complaint.contains("Content Security Policy")), "{complaints:?}");
        browser.close().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn runs_no_script_without_javascript() {
        let browser = Browser::without_javascript().await;
        browser.open(&page("script-src 'unsafe-inline'").await).await;
        assert_eq!(browser.text("h1").await.as_deref(), Some("as served"));
        browser.close().await;
    }
}
