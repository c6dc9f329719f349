//! The simulated environment of a sandbox: chains, clock, webhook inboxes and identity provider, and the routes that drive
//! them.
//!
//! All stored data is in one folder. A production build contains none of it. Deliberately absent: the start of the
//! service inside this environment, which is in the `payferry` package.

mod chain;
mod discovery;
mod env;
mod folder;
mod inbox;
mod member;
pub mod routes;

pub use chain::{Accounts, FOUNDATION_BLOCKS, Payer, SandboxChain, TRANSFER_MAX, known_spec};
pub use discovery::{SharedChains, announce};
pub use env::{ADVANCE_SECS_MAX, SandboxEnv};
pub use folder::{DEFAULT_FOLDER, Folder, database_file, documents_folder, keys_file, read_json, write_json};
pub use member::{MemberStart, NodeReady, Orders, member_setups};
pub use routes::SandboxHost;
