//! Numbers of statements and commits, by pool.

use std::sync::atomic::{AtomicU64, Ordering};

/// Statements and commits of one pool since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementCounts {
    /// Pool: `journal`, `writer`, `reader` or `api`.
    pub pool: &'static str,
    /// Statements, without `BEGIN`, `COMMIT` and `ROLLBACK`.
    pub statements: u64,
    /// Commits that were sent: of transactions, and of single statements that write.
    pub commits: u64,
}

/// Counts the statements and commits of one pool.
#[derive(Debug)]
pub(crate) struct StatementCounter {
    pool: &'static str,
    /// False if every statement outside of a transaction only reads.
    writes: bool,
    statements: AtomicU64,
    commits: AtomicU64,
}

impl StatementCounter {
    pub(crate) const fn of_writes(pool: &'static str) -> Self {
        Self { pool, writes: true, statements: AtomicU64::new(0), commits: AtomicU64::new(0) }
    }

    pub(crate) const fn of_reads(pool: &'static str) -> Self {
        Self { writes: false, ..Self::of_writes(pool) }
    }

    /// Counts a statement outside of a transaction, which commits by itself.
    pub(crate) fn alone(&self, sql: &str) {
        self.within(1);
        if self.writes && !is_select(sql) {
            self.committed();
        }
    }

    /// Counts statements of a transaction.
    pub(crate) fn within(&self, statements: usize) {
        self.statements.fetch_add(statements as u64, Ordering::Relaxed);
    }

    /// Counts the commit of a transaction.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> StatementCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatementCounts { pool: self.pool, statements: of(&self.statements), commits: of(&self.commits) }
    }
}

fn is_select(sql: &str) -> bool {
    const SELECT: &str = "SELECT";
    sql.trim_start().get(..SELECT.len()).is_some_and(|start| start.eq_ignore_ascii_case(SELECT))
}
