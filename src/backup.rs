//! A backup: one file with a consistent copy of an SQLite database and the documents that its rows name.
//!
//! Owned here: the archive, its verification, and its restoration. Deliberately absent: the master key and the keys of the
//! signers, which must not be stored beside the data that they protect; and PostgreSQL, which has tools of its own.
//!
//! The file is a gzipped tar archive, encrypted in the age format if recipients are given. So `age` and `tar` open it without
//! Payferry. Its last entry is the manifest, with the size and the SHA-256 of every other entry.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail, ensure};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use payferry_domain::Timestamp;
use payferry_entities::{Database, query_all};
use payferry_migration::pending;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Entry of the database.
const DATABASE: &str = "payferry.db";
/// Folder of the documents' entries.
const DOCUMENTS: &str = "documents";
/// Entry that describes the others.
const MANIFEST: &str = "manifest.json";
/// Maximum size of a manifest in bytes: about a million documents.
const MANIFEST_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// First bytes of a file in the age format.
const AGE_MAGIC: &[u8] = b"age-encryption.org/";

/// Contents of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of Payferry that made it.
    pub version: String,
    /// Time at which the copy of the database was begun.
    pub created_at: String,
    /// Every other entry, by its path.
    pub files: BTreeMap<String, FileSum>,
}

/// Size and hash of an entry.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Size of the database in bytes.
    pub fn database_bytes(&self) -> u64 {
        self.files.get(DATABASE).map_or(0, |sum| sum.bytes)
    }

    /// Number of documents.
    pub fn documents(&self) -> usize {
        self.files.len().saturating_sub(1)
    }
}

/// Backs up an open SQLite database and the folder of its documents as the new file `out`. The service may run meanwhile: the
/// copy has every commit until it began. Verifies the copy, and the file unless it is encrypted.
pub async fn back_up(
    database: &Database,
    documents: Option<&Path>,
    out: &Path,
    recipients: &[String],
    now: Timestamp,
) -> anyhow::Result<Manifest> {
    ensure!(!out.exists(), "{} exists already; name a new file", out.display());
    let parse = |text: &String| {
        text.parse::<age::x25519::Recipient>()
            .map_err(|why| anyhow::anyhow!("--recipient {text}: {why}; expected age1..."))
    };
    let recipients = recipients.iter().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
    let staging = staging_beside(out)?;
    let copy = staging.path().join(DATABASE);
    let path = copy.to_str().context("the path of the backup is not UTF-8")?;
    let copied = query_all(&database.long_timeout(), "VACUUM INTO $1", [path.into()]).await;
    copied.context("the database cannot be copied")?;
    verify(&copy).await.context("the copy of the database")?;
    let (part, documents) = (staging.path().join("part"), documents.map(Path::to_owned));
    let (out, created_at) = (out.to_owned(), now.to_string());
    tokio::task::spawn_blocking(move || {
        let file = BufWriter::new(create(&part)?);
        let archive = Archive { copy: &copy, documents: documents.as_deref(), created_at };
        let (written, manifest) = if recipients.is_empty() {
            archive.write(file)?
        } else {
            let encryptor = age::Encryptor::with_recipients(recipients.iter().map(|one| one as &dyn age::Recipient))?;
            let (encrypted, manifest) = archive.write(encryptor.wrap_output(file)?)?;
            (encrypted.finish()?, manifest)
        };
        written.into_inner()?.sync_all()?;
        if recipients.is_empty() {
            unpack(&part, None, |_| Ok(None)).context("the written backup")?;
        }
        fs::rename(&part, &out)?;
        sync_folder(&out)?;
        Ok(manifest)
    })
    .await?
}

/// Where a backup is restored to. None of these may exist, except for an empty folder of documents.
#[derive(Debug, Clone)]
pub struct Target {
    /// File of the database.
    pub database: PathBuf,
    /// Folder of the documents.
    pub documents: PathBuf,
}

/// Restores a backup. Without a target, only verifies it. `identities` is a file with the age identity of one of its recipients.
/// Nothing is at the target before everything is verified.
pub async fn restore(file: &Path, identities: Option<&Path>, target: Option<Target>) -> anyhow::Result<Manifest> {
    if let Some(Target { database, documents }) = &target {
        let companions = ["-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", database.display())));
        if let Some(there) = [database].into_iter().chain(&companions).find(|path| path.exists()) {
            bail!("{} exists already; move it away first", there.display());
        }
        if fs::read_dir(documents).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty; move it away first", documents.display());
        }
    }
    // Beside the target, so that everything can be renamed.
    let (beside_database, beside_documents) = match &target {
        Some(target) => (staging_beside(&target.database)?, staging_beside(&target.documents)?),
        None => (tempfile::tempdir()?, tempfile::tempdir()?),
    };
    let (database, documents) = (beside_database.path().join(DATABASE), beside_documents.path().join(DOCUMENTS));
    let manifest = tokio::task::spawn_blocking({
        let (file, identities) = (file.to_owned(), identities.map(Path::to_owned));
        let (database, documents) = (database.clone(), documents.clone());
        move || {
            unpack(&file, identities.as_deref(), |name| {
                let Some(document) = name.strip_prefix(DOCUMENTS).and_then(|name| name.strip_prefix('/')) else {
                    return create(&database).map(Some);
                };
                let path = documents.join(document);
                fs::create_dir_all(path.parent().unwrap_or(&documents))?;
                create(&path).map(Some)
            })
        }
    })
    .await??;
    verify(&database).await.context("the database of the backup")?;
    if let Some(target) = target {
        if documents.exists() {
            let _ = fs::remove_dir(&target.documents);
            fs::rename(&documents, &target.documents)?;
            sync_folder(&target.documents)?;
        }
        fs::rename(&database, &target.database)?;
        sync_folder(&target.database)?;
    }
    Ok(manifest)
}

/// Checks the structure of a database file, and that this version of Payferry knows its tables.
async fn verify(file: &Path) -> anyhow::Result<()> {
    let database = sea_orm::Database::connect(format!("sqlite://{}?mode=ro", file.display())).await?;
    let rows = query_all(&database, "PRAGMA integrity_check", []).await?;
    let found: Vec<String> = rows.iter().map(|row| row.try_get_by_index(0)).collect::<Result<_, _>>()?;
    ensure!(found == ["ok"], "is damaged: {}", found.join("; "));
    let orphans = query_all(&database, "PRAGMA foreign_key_check", []).await?.len();
    ensure!(orphans == 0, "has {orphans} rows that refer to missing rows");
    pending(&database).await?;
    Ok(database.close().await?)
}

/// An archive to be written.
struct Archive<'a> {
    copy: &'a Path,
    documents: Option<&'a Path>,
    created_at: String,
}

impl Archive<'_> {
    fn write<W: Write>(self, output: W) -> anyhow::Result<(W, Manifest)> {
        let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::default()));
        let mut files = BTreeMap::new();
        append(&mut archive, DATABASE, &mut files, File::open(self.copy)?)?;
        for (name, path) in self.documents.map(objects).transpose()?.unwrap_or_default() {
            match File::open(&path) {
                Ok(file) => append(&mut archive, &format!("{DOCUMENTS}/{name}"), &mut files, file)?,
                // Removed since the folder was listed: no row of the copy may need it any more, or its upload failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        let manifest = Manifest { version: env!("CARGO_PKG_VERSION").to_owned(), created_at: self.created_at, files };
        let text = serde_json::to_vec_pretty(&manifest)?;
        let mut header = header(text.len() as u64);
        archive.append_data(&mut header, MANIFEST, text.as_slice())?;
        Ok((archive.into_inner()?.finish()?, manifest))
    }
}

/// Appends a file, and adds its size and hash.
fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    files: &mut BTreeMap<String, FileSum>,
    file: File,
) -> anyhow::Result<()> {
    let mut header = header(file.metadata()?.len());
    let mut content = Hashed { inner: file, hash: Sha256::new(), bytes: 0 };
    archive.append_data(&mut header, name, &mut content).with_context(|| name.to_owned())?;
    files.insert(name.to_owned(), content.sum());
    Ok(())
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_cksum();
    header
}

/// Reads a backup to its end, writes each entry to the file that `place` creates for it, and compares everything with the manifest.
fn unpack(
    file: &Path,
    identities: Option<&Path>,
    place: impl FnMut(&str) -> io::Result<Option<File>>,
) -> anyhow::Result<Manifest> {
    let mut input = BufReader::new(File::open(file).with_context(|| file.display().to_string())?);
    if !io::BufRead::fill_buf(&mut input)?.starts_with(AGE_MAGIC) {
        return unpack_from(input, place);
    }
    let identities = identities.context("the backup is encrypted: name a file with an age identity (--identity)")?;
    let name = identities.to_str().context("--identity: the path is not UTF-8")?.to_owned();
    let known = age::IdentityFile::from_file(name).with_context(|| format!("--identity {}", identities.display()))?;
    let known = known.into_identities()?;
    let content = age::Decryptor::new(input)?.decrypt(known.iter().map(|one| one.as_ref() as &dyn age::Identity));
    unpack_from(BufReader::new(content.context("the backup cannot be decrypted with this identity")?), place)
}

fn unpack_from(
    input: impl io::BufRead,
    mut place: impl FnMut(&str) -> io::Result<Option<File>>,
) -> anyhow::Result<Manifest> {
    let mut archive = tar::Archive::new(GzDecoder::new(input));
    let (mut files, mut manifest) = (BTreeMap::new(), None::<Manifest>);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_str().context("an entry's name is not UTF-8")?.to_owned();
        ensure!(is_expected(&name) && entry.header().entry_type().is_file(), "the unexpected entry {name}");
        if name == MANIFEST {
            ensure!(entry.size() <= MANIFEST_BYTES_MAX, "the manifest is too large");
            manifest = Some(serde_json::from_reader(&mut entry)?);
            continue;
        }
        let file = place(&name)?;
        let mut content = Hashed { inner: &mut entry, hash: Sha256::new(), bytes: 0 };
        match file {
            Some(mut file) => {
                io::copy(&mut content, &mut file)?;
                file.sync_all()?;
            }
            None => drop(io::copy(&mut content, &mut io::sink())?),
        }
        files.insert(name, content.sum());
    }
    let manifest = manifest.context("the backup is incomplete: it has no manifest")?;
    let differs = |(name, sum): &(&String, &FileSum)| files.get(*name) != Some(sum);
    if let Some((name, _)) = manifest.files.iter().find(differs) {
        bail!("the backup is damaged: {name} is missing or differs from the manifest");
    }
    ensure!(files.len() == manifest.files.len(), "the backup has files that its manifest lacks");
    ensure!(files.contains_key(DATABASE), "the backup has no database");
    Ok(manifest)
}

/// Returns true for the names that a backup has: nothing may be written outside of the target.
fn is_expected(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let is_document = parts.next() == Some(Component::Normal(DOCUMENTS.as_ref())) && parts.next().is_some();
    is_plain && (name == DATABASE || name == MANIFEST || is_document)
}

/// Objects in a folder of documents, with their paths in it.
fn objects(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| next.display().to_string())?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder)?.to_str().context("a document's name is not UTF-8")?.to_owned();
            // An upload that is not finished.
            if !name.contains('#') {
                found.push((name, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Hashes what is read.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
    bytes: u64,
}

impl<R> Hashed<R> {
    fn sum(self) -> FileSum {
        FileSum { bytes: self.bytes, sha256: hex::encode(self.hash.finalize()) }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Creates a file that only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A folder in the folder of this path, which is removed on drop and that only its owner can read.
fn staging_beside(path: &Path) -> anyhow::Result<TempDir> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new().prefix(".payferry-").tempdir_in(folder).with_context(|| folder.display().to_string())
}

/// Makes a rename survive a power failure.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
