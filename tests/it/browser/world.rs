//! A sandbox in a process of its own, with a person at its operator's page.

use std::path::{Path, PathBuf};
use std::time::Duration;

use payferry_domain::{Chain, Token};
use payferry_harness::PATIENCE;
use payferry_harness::browser::Browser;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use reqwest::Method;
use serde_json::json;

use crate::process::{Home, Running};

/// Widths at which every page is looked at: a desk and a telephone.
pub const WIDE: u32 = 1440;
pub const NARROW: u32 = 400;
const HEIGHT: u32 = 900;

/// The running service, its PSP and the person.
pub struct Desk {
    pub browser: Browser,
    pub psp: Psp,
    pub running: Running,
    pub home: Home,
    // Answers webhooks until the end.
    _receiver: Receiver,
}

impl Desk {
    /// Nobody is logged in yet.
    pub async fn start() -> Self {
        Self::start_with(Browser::start().await, [0, 0]).await
    }

    /// The same on these ports, with this browser.
    pub async fn start_with(browser: Browser, ports: [u16; 2]) -> Self {
        let home = Home::new().await;
        let running = Running::start_with(&home, ports, &[]);
        let receiver = Receiver::start().await;
        let psp = Psp::connect(running.text("api_url"), running.text("api_key"), &receiver).await;
        browser.resize(WIDE, HEIGHT, 1).await;
        Self { browser, psp, running, home, _receiver: receiver }
    }

    /// The operator is logged in and looks at the overview.
    pub async fn logged_in() -> Self {
        let desk = Self::start().await;
        desk.log_in().await;
        desk
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.text("operator_url"))
    }

    pub async fn open(&self, path: &str) {
        self.browser.open(&self.url(path)).await;
    }

    /// Opens the page, shows the token, and is at the overview.
    pub async fn log_in(&self) {
        self.open("/ops").await;
        self.enter(self.running.text("operator_token")).await;
        self.browser.until("h1", |text| text == "Overview").await;
        // The browser says that it was refused, which it was.
        self.browser.complaints().await;
    }

    /// Fills in the login form.
    pub async fn enter(&self, token: &str) {
        self.browser.fill("input[name=token]", token).await;
        self.browser.click("main form button").await;
    }

    /// A payment that waits for its money.
    pub async fn payment(&self) -> String {
        self.psp.payment("25", Token::Usdc, Chain::Base).await
    }

    /// Pays it, with as much as is due or another amount.
    pub async fn pay(&self, id: &str, amount: Option<&str>) {
        let body = amount.map_or_else(|| json!({}), |amount| json!({"amount": amount}));
        self.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), body).await;
    }

    /// Makes its actor panic so often.
    pub async fn panic(&self, id: &str, times: u32) {
        self.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), json!({"times": times})).await;
    }

    /// Leaves a mark that a reload would wipe out.
    pub async fn mark(&self) {
        self.browser.run("window.mark = 'as it was'").await;
    }

    /// Whether the page has not been loaded again since.
    pub async fn is_marked(&self) -> bool {
        self.browser.run("return window.mark ?? null").await == "as it was"
    }

    /// Fails if the page is wider than the window.
    pub async fn assert_fits(&self, width: u32) {
        self.browser.resize(width, HEIGHT, 1).await;
        let wide = self
            .browser
            .run(
                "const folded = [...document.querySelectorAll('details:not([open])')];\
                 folded.forEach(one => one.open = true);\
                 const all = [...document.querySelectorAll('main *, header *')].filter(one => !one.closest('.scroll'));\
                 const out = all.filter(one => one.getBoundingClientRect().right > innerWidth + 0.5);\
                 out.push(...[...document.querySelectorAll('.panel')].filter(one => one.scrollWidth > one.clientWidth));\
                 const width = document.documentElement.scrollWidth;\
                 folded.forEach(one => one.open = false);\
                 return [width, out.slice(0, 5).map(one => one.outerHTML.slice(0, 160))]",
            )
            .await;
        let path = self.browser.path().await;
        assert!(wide[0].as_u64().unwrap() <= u64::from(width), "{path} is too wide for {width}: {wide:#}");
        assert_eq!(wide[1], json!([]), "{path} is cut off at {width}");
    }

    /// Fails if the browser had anything to complain of.
    pub async fn assert_calm(&self) {
        assert_eq!(self.browser.complaints().await, Vec::<String>::new());
    }

    /// Waits until the page has been brought to the present at least once more.
    pub async fn refreshed(&self) {
        let since = self.browser.run("return performance.getEntriesByType('resource').length").await;
        let since = since.as_u64().unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let script = "return performance.getEntriesByType('resource').length";
            if self.browser.run(script).await.as_u64().unwrap() > since + 1 {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "the page was not fetched again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Where pictures go: beside the build, or, to refresh those that are kept, where `PAYFERRY_SCREENSHOTS` says.
pub fn pictures() -> PathBuf {
    let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::env::var_os("PAYFERRY_SCREENSHOTS").map_or_else(beside, PathBuf::from)
}
