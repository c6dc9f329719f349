//! HTTP servers of the tests, on free ports of this machine.

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Serves `router` until the handle is dropped. Returns its base URL.
///
/// # Panics
/// Panics if no port can be bound.
pub async fn serve_until_dropped(router: Router) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port can be bound");
    let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (url, AbortOnDropHandle::new(serving))
}

/// Serves `router` until the runtime ends. Returns its base URL.
///
/// # Panics
/// Panics if no port can be bound.
pub async fn serve(router: Router) -> String {
    let (url, serving) = serve_until_dropped(router).await;
    serving.detach();
    url
}
