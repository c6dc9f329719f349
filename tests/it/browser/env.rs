//! Test environment: a sandbox in its own process, and a browser at its operator's page.

use std::path::{Path, PathBuf};

use payferry_harness::browser::Browser;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;

use crate::prelude::*;
use crate::process::{Home, Running};

/// Widths of the tested pages: a desktop and a phone.
pub const WIDE: u32 = 1440;
pub const NARROW: u32 = 400;
const HEIGHT: u32 = 900;

/// The running service, its PSP and the browser.
pub struct ServiceFixture {
    pub browser: Browser,
    pub psp: Psp,
    pub running: Running,
    // Answers webhooks until the end of the test.
    _receiver: Receiver,
}

impl ServiceFixture {
    /// Starts a sandbox without a login.
    pub async fn start() -> Self {
        Self::start_with(Browser::start().await, [0, 0]).await
    }

    /// Starts a sandbox on these ports, with this browser.
    pub async fn start_with(browser: Browser, ports: [u16; 2]) -> Self {
        Self::configured(browser, ports, &[]).await
    }

    /// Starts a sandbox with these environment variables and logs the shared operator in.
    pub async fn logged_in_with(env: &[(&str, &str)]) -> Self {
        let service = Self::configured(Browser::start().await, [0, 0], env).await;
        service.log_in().await;
        service
    }

    async fn configured(browser: Browser, ports: [u16; 2], env: &[(&str, &str)]) -> Self {
        let home = Home::new().await;
        let running = Running::start_with(&home, ports, env);
        let receiver = Receiver::start().await;
        let psp = Psp::connect(running.text("api_url"), running.text("api_key"), &receiver).await;
        browser.resize(WIDE, HEIGHT, 1).await;
        Self { browser, psp, running, _receiver: receiver }
    }

    /// Starts a sandbox and logs the operator in; the overview is open.
    pub async fn logged_in() -> Self {
        let service = Self::start().await;
        service.log_in().await;
        service
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.text("operator_url"))
    }

    pub async fn open(&self, path: &str) {
        self.browser.open(&self.url(path)).await;
    }

    /// Opens the login page and logs in; then the overview is open.
    pub async fn log_in(&self) {
        self.open("/ops").await;
        self.enter(self.running.text("operator_token")).await;
        self.browser.until("h1", |text| text == "Overview").await;
        // Clears the browser's console message about the 401 answer.
        self.browser.complaints().await;
    }

    /// Submits the login form.
    pub async fn enter(&self, token: &str) {
        self.browser.fill("input[name=token]", token).await;
        self.browser.click("main form button").await;
    }

    /// Creates a pending payment.
    pub async fn payment(&self) -> String {
        self.psp.payment("25", Token::Usdc, Chain::Base).await
    }

    /// Pays the due amount or another amount.
    pub async fn pay(&self, id: &str, amount: Option<&str>) {
        let body = amount.map_or_else(|| json!({}), |amount| json!({"amount": amount}));
        self.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), body).await;
    }

    /// Makes the payment's actor panic this many times.
    pub async fn panic(&self, id: &str, times: u32) {
        self.psp.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), json!({"times": times})).await;
    }

    /// Fills in the reason and the confirmation of a form, and sends it.
    pub async fn sign(&self, form: &str) {
        self.browser.fill(&format!("{form} input[name=reason]"), "seen at the counter").await;
        self.browser.click(&format!("{form} input[name=confirm]")).await;
        self.browser.click(&format!("{form} button")).await;
    }

    /// Makes the change behind the button in this element.
    pub async fn change(&self, within: &str) {
        self.browser.click(&format!("{within} details.act summary")).await;
        self.sign(&format!("{within} details.act form")).await;
    }

    /// Sets a mark in the page that a reload would remove.
    pub async fn mark(&self) {
        self.browser.run("window.mark = 'as it was'").await;
    }

    /// Returns `true` if the page was not reloaded since the mark.
    pub async fn is_marked(&self) -> bool {
        self.browser.run("return window.mark ?? null").await == "as it was"
    }

    /// Asserts that the page is not wider than the window.
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

    /// Asserts that the page is not wider than a phone's window or a desktop's.
    pub async fn assert_fits_both(&self) {
        self.assert_fits(NARROW).await;
        self.assert_fits(WIDE).await;
    }

    /// Takes pictures of the page at both widths; `kept` ones are also used in the documentation.
    pub async fn pictured(&self, name: &str, kept: bool) {
        for width in [WIDE, NARROW] {
            self.assert_fits(width).await;
            if kept || std::env::var_os("PAYFERRY_SCREENSHOTS").is_none() {
                self.browser.picture(&pictures().join(format!("{name}-{width}.png"))).await;
            }
        }
    }

    /// Ends a test in which the browser logged nothing but answers with this status.
    pub async fn end_after(self, status: &str) {
        let complaints = self.browser.complaints().await;
        assert!(complaints.iter().all(|complaint| complaint.contains(status)), "{complaints:?}");
        self.browser.close().await;
    }

    /// Ends a test in which the browser logged no problem.
    pub async fn end(self) {
        self.assert_calm().await;
        self.browser.close().await;
    }

    /// Asserts that the browser logged no problem.
    pub async fn assert_calm(&self) {
        assert_eq!(self.browser.complaints().await, Vec::<String>::new());
    }

    /// Kills the sandbox.
    pub fn kill(&self) {
        let pid = self.running.process.id().to_string();
        assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    }

    /// Waits until the page has fetched an update at least once more.
    pub async fn refreshed(&self) {
        let script = "return performance.getEntriesByType('resource').length";
        let fetched = async || self.browser.run(script).await.as_u64().unwrap();
        let since = fetched().await;
        until("the page fetches an update", async || (fetched().await > since + 1).then_some(())).await;
    }
}

/// Folder of pictures: in the build folder, or `PAYFERRY_SCREENSHOTS` to refresh the pictures of the documentation.
pub(crate) fn pictures() -> PathBuf {
    let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::env::var_os("PAYFERRY_SCREENSHOTS").map_or_else(beside, PathBuf::from)
}
