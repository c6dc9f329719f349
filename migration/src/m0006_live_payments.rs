//! Index of live payments by groups of shards. Ids of the same millisecond are spread over all logical shards, so an
//! index by shard writes every new payment to another page. With groups of 32 shards, new payments share few pages. The
//! shard is the last column, so that the index can skip rows of other shards.

pub(crate) const UP: &[&str] =
    &["DROP INDEX payments_live", "CREATE INDEX payments_live ON payments ((shard / 32), id, shard) WHERE live"];
