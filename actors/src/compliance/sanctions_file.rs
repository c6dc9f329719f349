//! KYT provider with a file of sanctioned addresses, which may be replaced while the service runs.
//!
//! The file has one address per line, in either letter case; `#` begins a comment, blank lines are ignored. The
//! provider checks the file when it screens a transfer and compares the content: sizes repeat easily because all lines
//! are equally long, and not every tool updates the modification time. An unreadable, invalid or empty file never
//! replaces the current list. Not here: fetching lists.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use payferry_domain::Address;
use payferry_domain::payment::Verdict;
use payferry_runtime::clock::Clock;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict;

/// Provider name in verdicts.
const NAME: &str = "sanctions_file";
/// Minimum interval between checks of the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of the file; enough for about 700,000 addresses.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of the content's digest that form a version, two digits each.
const VERSION_BYTES: usize = 6;

/// Reasons to reject a file. The variants' names are the labels in metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum SanctionsFileError {
    /// It cannot be read.
    #[error("the sanctions file cannot be read: {0}")]
    Unreadable(ErrorKind),
    /// It exceeds the size limit.
    #[error("the sanctions file is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// A line is neither an address nor a comment nor blank. Lines count from 1.
    #[error(
        "line {0} of the sanctions file is not an address: expected 0x and 40 hexadecimal digits; # begins a comment"
    )]
    BadLine(usize),
    /// It contains no address, which is more likely a mistake than intended.
    #[error("the sanctions file contains no address")]
    Empty,
}

/// Blocks transfers from addresses in the file; allows the rest.
#[derive(Debug)]
pub struct SanctionsFile {
    path: PathBuf,
    clock: Clock,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    list: List,
    checked: Instant,
    /// Error of the current file; the list in use is an older one.
    last_error: Option<SanctionsFileError>,
}

#[derive(Debug)]
struct List {
    digest: [u8; 32],
    addresses: HashSet<Address>,
}

impl SanctionsFile {
    /// Opens the file, which must contain a valid list now.
    pub fn open(path: impl Into<PathBuf>, clock: Clock) -> Result<Self, SanctionsFileError> {
        let path = path.into();
        let list = List::parse(&read(&path)?)?;
        let current = Current { list, checked: Instant::now(), last_error: None };
        Ok(Self { path, clock, current: Mutex::new(current) })
    }

    /// Checks the file again if the interval has passed. Concurrent screenings wait for it, which takes milliseconds.
    async fn refresh(&self, current: &mut Current) {
        if current.checked.elapsed() < CHECK_INTERVAL {
            return;
        }
        let (path, known) = (self.path.clone(), current.list.digest);
        let looked = tokio::task::spawn_blocking(move || {
            let bytes = read(&path)?;
            if digest_of(&bytes) == known { Ok(None) } else { List::parse(&bytes).map(Some) }
        });
        let looked = looked.await.unwrap_or(Err(SanctionsFileError::Unreadable(ErrorKind::Other)));
        current.checked = Instant::now();
        match looked {
            Ok(changed) => current.take(changed),
            Err(error) => current.keep(error),
        }
    }
}

impl Current {
    fn take(&mut self, changed: Option<List>) {
        let mended = self.last_error.take().is_some();
        let news = mended || changed.is_some();
        if let Some(list) = changed {
            self.list = list;
        }
        if news {
            let (count, version) = (self.list.addresses.len(), self.list.version());
            tracing::info!(list.version = version, count, "loaded the changed sanctions file");
        }
    }

    fn keep(&mut self, error: SanctionsFileError) {
        super::metrics::FILE_ERRORS.add(&[("reason", (&error).into())], 1);
        if self.last_error.as_ref() != Some(&error) {
            let version = self.list.version();
            tracing::warn!(list.version = version, %error, "the previous sanctions list stays in use");
            self.last_error = Some(error);
        }
    }
}

#[async_trait::async_trait]
impl KytScreener for SanctionsFile {
    fn name(&self) -> &str {
        NAME
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let mut current = self.current.lock().await;
        self.refresh(&mut current).await;
        let verdict = verdict::of_listing(NAME, current.list.addresses.contains(&request.address), self.clock.now());
        Ok(Verdict { list_version: Some(current.list.version()), ..verdict })
    }
}

impl List {
    fn parse(bytes: &[u8]) -> Result<Self, SanctionsFileError> {
        let mut addresses = HashSet::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let bad = || SanctionsFileError::BadLine(index + 1);
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let text = str::from_utf8(line).map_err(|_| bad())?.trim();
            // Some editors start a file with a byte order mark.
            let text = if index == 0 { text.trim_start_matches('\u{feff}') } else { text };
            if !text.is_empty() {
                addresses.insert(text.replacen("0X", "0x", 1).parse().map_err(|_| bad())?);
            }
        }
        if addresses.is_empty() {
            return Err(SanctionsFileError::Empty);
        }
        Ok(Self { digest: digest_of(bytes), addresses })
    }

    /// Returns a short digest of the file's content.
    fn version(&self) -> String {
        hex::encode(&self.digest[..VERSION_BYTES])
    }
}

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn read(path: &Path) -> Result<Vec<u8>, SanctionsFileError> {
    let unreadable = |error: std::io::Error| SanctionsFileError::Unreadable(error.kind());
    let mut bytes = Vec::new();
    let mut file = File::open(path).map_err(unreadable)?.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(SanctionsFileError::TooLarge);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use payferry_domain::payment::Decision;
    use tempfile::TempDir;

    use super::*;
    use crate::compliance::tests::{request_from, until};

    const OUTLAW: &str = "0x00000000000000000000000000000000000000Ab";
    const OTHER: &str = "0x00000000000000000000000000000000000000Cd";

    struct Fixture {
        dir: TempDir,
        screener: SanctionsFile,
    }

    impl Fixture {
        fn new(content: &str) -> Self {
            let dir = TempDir::new().unwrap();
            let path = dir.path().join("list");
            std::fs::write(&path, content).unwrap();
            Self { dir, screener: SanctionsFile::open(path, Clock::default()).unwrap() }
        }

        fn write(&self, content: impl AsRef<[u8]>) {
            std::fs::write(self.dir.path().join("list"), content).unwrap();
        }

        async fn screen(&self, from: &str) -> Verdict {
            self.screener.screen(&request_from(from.parse().unwrap())).await.unwrap()
        }

        /// Waits until the screener has noticed this error of the file.
        async fn until_degraded(&self, error: SanctionsFileError) {
            until("the error is noticed", async || {
                self.screen(OTHER).await;
                self.screener.current.lock().await.last_error == Some(error.clone())
            })
            .await;
        }
    }

    fn error_of(content: &[u8]) -> SanctionsFileError {
        List::parse(content).unwrap_err()
    }

    #[tokio::test]
    async fn blocks_listed_senders_and_allows_others() {
        let upper = OUTLAW.to_uppercase();
        let list = format!("\u{feff}# sanctioned\r\n\r\n  {upper} # since 2022\r\n\n#\n0x{}\n", "1".repeat(40));
        let fixture = Fixture::new(&list);
        let verdict = fixture.screen(OUTLAW).await;
        assert_eq!((verdict.decision, verdict.flags), (Decision::Block, vec!["sanctions".to_owned()]));
        assert_eq!(verdict.provider, "sanctions_file");
        assert_eq!(verdict.list_version.unwrap(), hex::encode(&Sha256::digest(list)[..6]));
        assert_eq!(fixture.screen(OTHER).await.decision, Decision::Allow);
    }

    #[test]
    fn rejects_an_invalid_list_with_the_line_number() {
        for bad in ["0x12", "what", "0x00000000000000000000000000000000000000zz", &format!("{OUTLAW} {OTHER}")] {
            assert_eq!(
                error_of(format!("# list\n{OUTLAW}\n{bad}\n").as_bytes()),
                SanctionsFileError::BadLine(3),
                "{bad}"
            );
        }
        assert_eq!(error_of(b"\xff\xfe"), SanctionsFileError::BadLine(1));
        assert_eq!(error_of(b"# nobody\n\n"), SanctionsFileError::Empty);
        let missing = SanctionsFile::open("/nowhere/list", Clock::default()).unwrap_err();
        assert_eq!(missing, SanctionsFileError::Unreadable(ErrorKind::NotFound));
        assert!(SanctionsFileError::BadLine(3).to_string().starts_with("line 3 "));
    }

    #[tokio::test]
    async fn changed_file_is_loaded() {
        let fixture = Fixture::new(OUTLAW);
        let before = fixture.screen(OUTLAW).await;
        // Of equal length, so a comparison of sizes would miss it.
        fixture.write(OTHER);
        until("the other address is listed", async || fixture.screen(OTHER).await.decision == Decision::Block).await;
        let after = fixture.screen(OUTLAW).await;
        assert_eq!(after.decision, Decision::Allow);
        assert_ne!(after.list_version, before.list_version);

        // Replaced by a file that is older than the previous one.
        let path = fixture.dir.path().join("new");
        let file = File::create(&path).unwrap();
        std::fs::write(&path, OUTLAW).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        std::fs::rename(&path, fixture.dir.path().join("list")).unwrap();
        until("the first address is listed again", async || fixture.screen(OUTLAW).await.decision == Decision::Block)
            .await;
        assert_eq!(fixture.screen(OUTLAW).await.list_version, before.list_version);
    }

    #[tokio::test]
    async fn invalid_or_missing_file_keeps_the_list() {
        let fixture = Fixture::new(OUTLAW);
        let before = fixture.screen(OUTLAW).await;
        fixture.write(format!("{OTHER}\nwhat\n"));
        fixture.until_degraded(SanctionsFileError::BadLine(2)).await;
        assert_eq!(fixture.screen(OUTLAW).await.list_version, before.list_version);
        assert_eq!(fixture.screen(OTHER).await.decision, Decision::Allow);
        fixture.write("");
        fixture.until_degraded(SanctionsFileError::Empty).await;
        std::fs::remove_file(fixture.dir.path().join("list")).unwrap();
        fixture.until_degraded(SanctionsFileError::Unreadable(ErrorKind::NotFound)).await;
        assert_eq!(fixture.screen(OUTLAW).await.decision, Decision::Block);
        fixture.write(format!("{OUTLAW}\n{OTHER}\n"));
        until("the corrected list is in use", async || fixture.screen(OTHER).await.decision == Decision::Block).await;
        assert_eq!(fixture.screener.current.lock().await.last_error, None);
    }
}
