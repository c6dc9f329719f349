//! An in-process EVM chain that speaks Ethereum JSON-RPC.
