//! Facts that every page shows, known before its handler runs.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::COOKIE;
use axum::middleware::Next;
use axum::response::Response;
use payferry_domain::Chain;

use crate::Operator;
use crate::history::History;
use crate::query::Count;

/// Cookie with the theme. The script sets it.
const THEME_COOKIE: &str = "payferry_theme";

tokio::task_local! {
    static CONTEXT: PageContext;
}

/// Facts that every page shows.
#[derive(Clone, Default)]
pub(crate) struct PageContext {
    /// Number of entries that need attention; `None` if it is unknown.
    pub(crate) entries: Option<Count>,
    /// The past of the figures.
    pub(crate) history: Option<Arc<History>>,
    /// `dark` or `light`, if the operator chose one.
    pub(crate) theme: Option<&'static str>,
    /// EIP-155 chain ids of the configured chains, for links to explorers.
    pub(crate) chain_ids: Vec<(Chain, u64)>,
}

/// The facts for the page that is being rendered.
pub(crate) fn context() -> PageContext {
    CONTEXT.try_with(Clone::clone).unwrap_or_default()
}

/// Middleware of the pages.
pub(crate) async fn with_context(State(operator): State<Operator>, request: Request, next: Next) -> Response {
    let rest = request.uri().path().strip_prefix("/ops");
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("/view")) {
        return next.run(request).await;
    }
    let chain_ids = operator.system.chains().running().map(|spec| (spec.chain, spec.chain_id)).collect();
    let theme = ["dark", "light"].into_iter().find(|theme| {
        let cookies = request.headers().get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let chosen = format!("{THEME_COOKIE}={theme}");
        cookies.flat_map(|value| value.split(';')).any(|pair| pair.trim() == chosen)
    });
    let history = Some(Arc::clone(&operator.history));
    let context = PageContext { entries: operator.entries().await, history, theme, chain_ids };
    CONTEXT.scope(context, next.run(request)).await
}
