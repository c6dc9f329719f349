//! The commands of the guides in `docs/src/guides`, which `tests/guides` runs against fresh sandboxes and local chains.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "long"]
fn commands_of_the_guides_work() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guides");
    let output = Command::new(script).env("PAYFERRY", env!("CARGO_BIN_EXE_payferry")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
}
