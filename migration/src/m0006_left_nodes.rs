//! The end of each node: one that ended by itself is no alarm, and one that was declared gone is.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0006_left_nodes",
    both: &[&[
        // NULL while the node runs, and for a node that was declared gone.
        "ALTER TABLE nodes ADD COLUMN left_at BIGINT",
        "UPDATE nodes SET left_at = seen_at WHERE state = 'gone'",
    ]],
    sqlite: &[],
    postgres: &[],
};
