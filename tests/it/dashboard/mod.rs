//! Tests of the PSP's dashboard over HTTP. `browser::dashboard` has those in Chromium.

mod forms;
mod pages;
mod session;

use url::form_urlencoded::Serializer;

use crate::prelude::*;

/// Origin of the pages, as a browser sends it.
const ORIGIN: &str = "http://psp.test";

/// Sends the sign-in form.
async fn sign_in(app: &TestApp, key: &str, next: &str) -> Reply {
    post(app, "/dashboard/login", &[("key", key), ("next", next)]).send().await
}

/// A signed-in browser.
struct SignedIn<'a> {
    app: &'a TestApp,
    cookie: String,
}

impl<'a> SignedIn<'a> {
    async fn with(app: &'a TestApp, key: &str) -> Self {
        let entered = sign_in(app, key, "").await.ok(303);
        let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { app, cookie }
    }

    fn request(&self, method: Method, path: &str) -> Call {
        self.app.request(method, path).without_key().header("host", "psp.test").header("cookie", &self.cookie)
    }

    async fn open(&self, path: &str) -> Reply {
        self.request(Method::GET, path).send().await
    }

    /// Sends a form with its confirmation.
    async fn confirm(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.send(path, &[fields, &[("confirm", "true")]].concat()).await
    }

    /// Sends a form without adding a confirmation.
    async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        // The id that the page gives to each form; fields of the test may replace it.
        let id = ulid::Ulid::generate().to_string();
        let has_id = fields.iter().any(|(name, _)| *name == "form_id");
        let id = (!has_id).then_some(("form_id", id.as_str()));
        let fields: Vec<_> = fields.iter().copied().chain(id).collect();
        post(self.app, path, &fields).header("cookie", &self.cookie).send().await
    }
}

/// A form with a file, of a page of this site.
fn post_file(app: &TestApp, path: &str, fields: &[(&str, &str)], (name, content): (&str, &[u8])) -> Call {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\r\n");
    body.extend([head.as_bytes(), content, b"\r\n--b--\r\n"].concat());
    let call = app.request(Method::POST, path).without_key().bytes(body);
    call.header("content-type", "multipart/form-data; boundary=b").header("host", "psp.test").header("origin", ORIGIN)
}

/// A form of a page of this site.
fn post(app: &TestApp, path: &str, fields: &[(&str, &str)]) -> Call {
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    let call = app.request(Method::POST, path).without_key().bytes(body);
    call.header("content-type", "application/x-www-form-urlencoded").header("host", "psp.test").header("origin", ORIGIN)
}

/// The path to which the answer redirects.
fn location(reply: &Reply) -> (u16, &str) {
    (reply.status.as_u16(), reply.header("location").unwrap_or_default())
}

/// The text of the secret that a page shows once.
fn shown_secret(reply: &Reply) -> String {
    let rest = reply.text().split_once("<span class=\"secret\">").unwrap_or_else(|| panic!("{}", reply.text())).1;
    rest.split('<').next().unwrap().to_owned()
}
