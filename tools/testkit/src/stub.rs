//! HTTP servers for tests of the tools.

use axum::Router;
use tokio::net::TcpListener;

/// Serves `router` on a free port of this machine until the runtime ends. Returns its base URL.
///
/// # Panics
/// Panics if no port can be bound.
pub async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port can be bound");
    let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
