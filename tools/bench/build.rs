//! Passes the name of the Cargo profile to the crate. `PROFILE` says `release` for every profile that inherits from
//! it, so the name is taken from the output folder: `target/<profile>/build/<crate>/out`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let folder = Path::new(&out).ancestors().nth(3).and_then(Path::file_name).and_then(|name| name.to_str());
    println!("cargo::rustc-env=PAYFERRY_BENCH_PROFILE={}", folder.unwrap_or("unknown"));
}
