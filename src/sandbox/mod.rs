//! The sandbox: the whole service in one process, with a simulated world around it.

mod accounts;
mod chain;
mod folder;
mod keys;

pub use accounts::Accounts;
pub use chain::{FOUNDATION_BLOCKS, Payer, SandboxChain, TRANSFER_MAX};
pub use folder::{DEFAULT_FOLDER, Folder, database_file, keys_file};
pub use keys::Keys;
