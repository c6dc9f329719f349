//! A real browser: headless Chromium with a profile of its own, driven as a person would use it.
//!
//! Every wait is bounded; a test that drops it leaves no process behind. Chromium and its driver are installed by
//! `tests/tools`; where they are missing the test fails and says so.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::common::capabilities::chromium::ChromiumLikeCapabilities;
use thirtyfour::error::WebDriverResult;
use thirtyfour::{By, CapabilitiesHelper, DesiredCapabilities, WebDriver, WebElement};

use crate::{PATIENCE, install_tls};

/// How long the driver may take to start.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Starts of the driver before it is given up: it sometimes ends at once, and which port it takes is its own choice.
const DRIVER_STARTS_MAX: usize = 3;
/// How long the driver may take for one command, a page's loading included.
const COMMAND_PATIENCE: Duration = Duration::from_mins(1);
/// How often somebody who waits looks.
const POLL: Duration = Duration::from_millis(25);
/// The driver says this, with its port, when it is ready.
const READY: &str = "started successfully on port ";

/// A root user has no sandbox in the sandbox; nothing is fetched by the browser of its own accord.
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
    // Whatever would look elsewhere finds nothing there.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// The same letters on every machine: pictures are compared by eye.
const FONTS: &str = r#"<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"#;

/// One browser with one page.
pub struct Browser {
    // In this order at the end: the session, the driver with all that it started, the profile.
    driver: WebDriver,
    _process: Process,
    _profile: TempDir,
}

/// The driver's process, killed when it is dropped; the browser ends with it.
struct Process(Child);

/// The driver and its port; `None` if it ended or took too long.
fn start_driver(fonts: &Path) -> Option<(Process, String)> {
    let program = std::env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
    let mut command = Command::new(&program);
    command.arg("--port=0").env("FONTCONFIG_FILE", fonts).env("TZ", "UTC");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("Chromium's driver cannot be started ({program}: {error}); tests/tools installs it, or name one in CHROMEDRIVER")
    });
    let stdout = child.stdout.take().unwrap();
    let process = Process(child);
    let (found, port) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once(READY) {
                let _ = found.send(rest.trim_end_matches('.').to_owned());
            }
        }
    });
    Some((process, port.recv_timeout(START_PATIENCE).ok()?))
}

impl Browser {
    /// A fresh browser.
    pub async fn start() -> Self {
        Self::launch(true).await
    }

    /// One that runs no script of any page.
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
            .expect("Chromium's driver said in no start that it was ready");
        let driver = WebDriver::builder(format!("http://127.0.0.1:{port}"), capabilities(profile.path(), runs_scripts))
            .request_timeout(COMMAND_PATIENCE)
            .connect()
            .await
            .unwrap_or_else(|error| panic!("Chromium did not start ({error}); tests/tools installs it"));
        Self { driver, _process: process, _profile: profile }
    }

    /// Opens an address and waits until it is loaded.
    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Loads the page again.
    pub async fn reload(&self) {
        self.driver.refresh().await.unwrap();
    }

    /// Where it is.
    pub async fn path(&self) -> String {
        self.driver.current_url().await.unwrap().path().to_owned()
    }

    /// The status with which the page was answered.
    pub async fn status(&self) -> i64 {
        let answer = self.run("return performance.getEntriesByType('navigation')[0].responseStatus").await;
        answer.as_i64().unwrap()
    }

    /// Makes the window so wide and high, in CSS pixels, with so many dots to each.
    pub async fn resize(&self, width: u32, height: u32, dots: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": dots, "mobile": false});
        self.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// What the person prefers.
    pub async fn prefer_dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.cdp("Emulation.setEmulatedMedia", media).await;
    }

    /// Whether it can reach anything.
    pub async fn set_online(&self, is_online: bool) {
        let conditions = json!({"offline": !is_online, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.cdp("Network.enable", json!({})).await;
        self.cdp("Network.emulateNetworkConditions", conditions).await;
    }

    /// Runs a script in every page from now on, before any of the page's own.
    pub async fn run_first(&self, script: &str) {
        self.cdp("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Runs a script and answers what it returns.
    pub async fn run(&self, script: &str) -> Value {
        let answer = self.driver.execute(script, Vec::new()).await;
        answer.unwrap_or_else(|error| panic!("{script}: {error}")).json().clone()
    }

    /// The text of the first element that the selector finds, as a person sees it; nothing if there is none.
    pub async fn text(&self, css: &str) -> Option<String> {
        self.try_text(css).await.unwrap_or_default()
    }

    async fn try_text(&self, css: &str) -> WebDriverResult<Option<String>> {
        match self.driver.find_all(By::Css(css)).await?.first() {
            Some(element) => Ok(Some(element.text().await?)),
            None => Ok(None),
        }
    }

    /// How many elements the selector finds.
    pub async fn count(&self, css: &str) -> usize {
        self.driver.find_all(By::Css(css)).await.unwrap().len()
    }

    /// Waits until the element's text is as wanted; answers the text. The page may replace it meanwhile.
    pub async fn until(&self, css: &str, wanted: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.text(css).await;
            if let Some(text) = text.as_deref().filter(|text| wanted(text)) {
                return text.to_owned();
            }
            assert!(since.elapsed() < PATIENCE, "{css} never became as wanted within {PATIENCE:?}: {text:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the selector finds so many elements.
    pub async fn until_count(&self, css: &str, wanted: usize) {
        let since = Instant::now();
        loop {
            let count = self.count(css).await;
            if count == wanted {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{css} never found {wanted} within {PATIENCE:?}: {count}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Clicks the first element that the selector finds, once it is there. A page that it leads to is loaded when this
    /// answers.
    pub async fn click(&self, css: &str) {
        self.when_there(css, async |element| element.click().await).await;
    }

    /// Types into a field, once it is there.
    pub async fn fill(&self, css: &str, text: &str) {
        self.when_there(css, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        })
        .await;
    }

    /// Does something with an element, again if the page replaced it meanwhile.
    async fn when_there(&self, css: &str, act: impl AsyncFn(WebElement) -> WebDriverResult<()>) {
        let since = Instant::now();
        loop {
            let done = match self.driver.find(By::Css(css)).await {
                Ok(element) => act(element).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => return,
                Err(error) => assert!(since.elapsed() < PATIENCE, "{css}: {error}"),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What the browser complained of since this was last asked: failed requests, refused scripts and styles, uncaught
    /// errors, and whatever a page wrote there itself.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.driver.browser_log().await.unwrap();
        entries.into_iter().map(|entry| format!("{}: {}", entry.level, entry.message)).collect()
    }

    /// A picture of the whole page, however high, as PNG.
    pub async fn picture(&self, path: &Path) {
        let size = self.run("const r = document.documentElement; return [r.clientWidth, r.scrollHeight]").await;
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = json!({"format": "png", "captureBeyondViewport": true, "clip": clip, "optimizeForSpeed": false});
        let answer = self.cdp("Page.captureScreenshot", shot).await;
        let png = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, answer["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, png).unwrap();
    }

    /// Ends it.
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

impl Drop for Process {
    fn drop(&mut self) {
        // Chromium dies with its parent.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::header::CONTENT_SECURITY_POLICY;
    use axum::response::Html;
    use axum::routing::get;

    use super::*;

    /// A page whose script its policy allows or not, on a port of its own.
    async fn page(policy: &'static str) -> String {
        let html = Html(
            "<!DOCTYPE html><html lang=en><title>t</title><link rel=icon href='data:,'><h1>as served</h1>\
             <script>document.querySelector('h1').textContent = 'as scripted'</script>",
        );
        let router = Router::new().route("/", get(async move || ([(CONTENT_SECURITY_POLICY, policy)], html)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_runs_scripts_takes_pictures_and_complains_of_what_is_refused() {
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
        // Its width stands in the header, after the signature and the name of the chunk.
        assert_eq!(png[16..20], 800_u32.to_be_bytes());

        browser.open(&page("script-src 'none'").await).await;
        assert_eq!(browser.text("h1").await.as_deref(), Some("as served"));
        let complaints = browser.complaints().await;
        assert!(complaints.iter().any(|complaint| complaint.contains("Content Security Policy")), "{complaints:?}");
        browser.close().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_javascript_no_script_runs() {
        let browser = Browser::without_javascript().await;
        browser.open(&page("script-src 'unsafe-inline'").await).await;
        assert_eq!(browser.text("h1").await.as_deref(), Some("as served"));
        browser.close().await;
    }
}
