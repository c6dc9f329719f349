//! Tests of several cases that share an environment.

/// Defines one test of several cases that share an environment: async functions that get it. After each of them, `after` runs.
/// Every case runs, and the failed ones are named.
macro_rules! shared {
    (#[$test:meta] $name:ident, $env:ident = $start:expr, $after:expr => $($case:ident),+ $(,)?) => {
        #[$test]
        #[allow(unused_mut, reason = "not every environment is changed between the cases")]
        async fn $name() {
            let mut $env = $start;
            let mut failed = Vec::new();
            $(
                let case = std::panic::AssertUnwindSafe(Box::pin($case(&$env)));
                if futures::FutureExt::catch_unwind(case).await.is_err() {
                    failed.push(stringify!($case));
                }
                $after.await;
            )+
            assert!(failed.is_empty(), "failed cases: {failed:?}");
        }
    };
}
