//! Names the tables that this build knows: `PAYFERRY_MIGRATIONS` is a hash of the migrations' sources.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../migration/src");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = files(&folder);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).hash(&mut hasher);
    }
    println!("cargo::rustc-env=PAYFERRY_MIGRATIONS={:016x}", hasher.finish());
}

/// The files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be listed").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
