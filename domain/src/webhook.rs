//! Words of webhook endpoints.

use crate::named::named;

named! {
    /// Schedule of the retries of an endpoint.
    RetrySchedule, "default, extended" {
        /// 3 retries within 6 minutes.
        Default = "default",
        /// 10 retries within 3 days.
        Extended = "extended",
    }
}
