//! A wrong clock of one process: a library that the loader puts before libc. Debian's faketime does the same, but its start crashes
//! in a program with its own allocator.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock of a process that was started with its variables.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// Compiles the library into a folder. The clock is right.
    pub fn new(folder: &Path) -> Self {
        let clock = Self { library: folder.join("clock.so"), offset: folder.join("clock.offset") };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clock.c");
        let mut compiler = Command::new("cc");
        let compiled =
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&clock.library).arg(source).status().unwrap();
        assert!(compiled.success());
        clock.set(0);
        clock
    }

    /// Variables for the process.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![("LD_PRELOAD", text(&self.library)), ("CLOCK_OFFSET_FILE", text(&self.offset))]
    }

    /// Sets how many seconds the clock is ahead.
    pub fn set(&self, seconds: i64) {
        // A file that is replaced is never seen empty.
        let next = self.offset.with_extension("next");
        std::fs::write(&next, seconds.to_string()).unwrap();
        std::fs::rename(&next, &self.offset).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn clock_of_another_process_is_shifted() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Clock::new(temp.path());
        for seconds in [0, 3_600, -3_600] {
            clock.set(seconds);
            let shown = Command::new("date").arg("+%s").envs(clock.env()).output().unwrap();
            let shown: i64 = String::from_utf8(shown.stdout).unwrap().trim().parse().unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let offset = shown - i64::try_from(now).unwrap();
            assert!((offset - seconds).abs() < 60, "{offset}");
        }
    }
}
