//! Files that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file as a whole, readable by its owner only. The old content stays if this fails.
pub fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let beside = file.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut new = options.open(&beside)?;
    new.write_all(content)?;
    new.sync_all()?;
    fs::rename(&beside, file)?;
    // The rename itself must survive a power failure.
    if let Some(folder) = file.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
