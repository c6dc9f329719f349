//! Scopes of API keys.

use crate::named::named;

named! {
    /// Permission of an API key.
    KeyScope, "read, payments, customers, money, webhooks, full" {
        /// Reads everything of the PSP.
        Read = "read",
        /// Creates and changes merchants and payments.
        Payments = "payments",
        /// Creates and changes customers.
        Customers = "customers",
        /// Moves money out.
        Money = "money",
        /// Changes the webhook endpoints and repeats deliveries.
        Webhooks = "webhooks",
        /// All of the others, and the settings.
        Full = "full",
    }
}
