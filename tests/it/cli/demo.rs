//! `payferry demo`, the first command of the README.

use super::{printed, run};

#[test]
fn the_demonstration_ends_as_expected() {
    let table = printed(&run(&["demo", "--payments", "60"]));
    for wanted in
        ["transfer orphaned, paid again", "60 payments at once", "every signature verified", "All as expected"]
    {
        assert!(table.contains(wanted), "{wanted} in {table}");
    }
}
