//! Checkpoints of a siftdb database in an object store.
//!
//! A *generation* is one checkpoint there:
//!
//! | object | what it is |
//! |---|---|
//! | `tables/ID-BYTES` | a table; generations share it, because tables never change |
//! | `generations/N/NAME` | another file of generation N: manifest, log, `CURRENT` |
//! | `generations/N/index` | all its files: bytes, name and object of each; written last |
//!
//! Without its index a generation does not exist. So an interrupted [`Backups::push`] leaves only
//! objects that the next one uses (tables) or [`Backups::prune`] removes. One process at a time may
//! push or prune; of two that push the same generation one gets an error.

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What went wrong: in the store, in the local files, or with an argument.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a call answers.
pub type Result<T> = std::result::Result<T, Error>;

const INDEX_HEADER: &str = "siftdb backup 1";

/// One file of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its length.
    pub bytes: u64,
    /// Its name in the directory of the database.
    pub name: String,
    /// Where it is, below the prefix of the backups.
    pub object: String,
}

/// One checkpoint in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number; later ones have larger numbers.
    pub number: u64,
    /// Its files, `CURRENT` last.
    pub files: Vec<BackupFile>,
}

impl Generation {
    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn to_index(&self) -> String {
        let line = |f: &BackupFile| format!("{} {} {}\n", f.bytes, f.name, f.object);
        format!("{INDEX_HEADER}\n{}end\n", self.files.iter().map(line).collect::<String>())
    }

    fn of_index(number: u64, text: &str) -> Option<Self> {
        let lines = text.strip_prefix(INDEX_HEADER)?.strip_prefix('\n')?.strip_suffix("end\n")?;
        let file = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            // A name from elsewhere must not leave the directory that is restored.
            [bytes, name, object] if is_plain(name) => Some(BackupFile {
                bytes: bytes.parse().ok()?,
                name: name.into(),
                object: object.into(),
            }),
            _ => None,
        };
        Some(Generation { number, files: lines.lines().map(file).collect::<Option<_>>()? })
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    name.bytes().all(plain) && !name.starts_with('.') && !name.is_empty()
}

/// What [`Backups::push`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The new generation.
    pub generation: u64,
    /// Tables that were sent; the others were there.
    pub tables_sent: u64,
    /// Bytes of everything that was sent.
    pub bytes_sent: u64,
}

/// The generations under a prefix of an object store.
#[derive(Clone, Debug)]
pub struct Backups {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
}

impl Backups {
    /// Those under `prefix` of `store`.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: ObjectPath) -> Self {
        Backups { store, prefix }
    }

    /// Those at a URL: `file:///directory`, or `s3://bucket/prefix` and others with their feature.
    /// Credentials come from the environment, as `AWS_ACCESS_KEY_ID`.
    ///
    /// # Errors
    /// The URL is none, or its store is not compiled in.
    pub fn at(url: &str) -> Result<Self> {
        let url = url::Url::parse(url)?;
        let (store, prefix) = object_store::parse_url_opts(&url, std::env::vars())?;
        // A local directory is as durable as a store elsewhere.
        let local = || object_store::local::LocalFileSystem::new().with_fsync(true);
        let is_local = url.scheme() == "file";
        Ok(Backups { store: if is_local { Arc::new(local()) } else { store.into() }, prefix })
    }

    fn path(&self, below: &str) -> ObjectPath {
        below.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Objects below a folder, without the prefix.
    async fn objects(&self, folder: &str) -> Result<BTreeMap<String, u64>> {
        let listed: Vec<ObjectMeta> =
            self.store.list(Some(&self.path(folder))).try_collect().await?;
        let all = usize::from(!self.prefix.as_ref().is_empty()) + self.prefix.as_ref().len();
        Ok(listed.into_iter().map(|o| (o.location.as_ref()[all..].into(), o.size)).collect())
    }

    async fn put(&self, object: &str, contents: Vec<u8>, mode: PutMode) -> Result<()> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let payload = PutPayload::from(contents);
        self.store.put_opts(&self.path(object), payload, options).await?;
        Ok(())
    }

    /// Removes objects, all of them or up to the first failure.
    async fn remove(&self, objects: impl IntoIterator<Item = &String>) -> Result<u64> {
        let paths: Vec<_> = objects.into_iter().map(|object| Ok(self.path(object))).collect();
        let removed = self.store.delete_stream(stream::iter(paths).boxed());
        Ok(removed.try_collect::<Vec<_>>().await?.len() as u64)
    }

    /// Sends the checkpoint in the directory `checkpoint` as a new generation. Tables that are
    /// there already are not sent again. Holds one table in memory at a time.
    ///
    /// # Errors
    /// The failure of a file or of the store: then there is no new generation.
    pub async fn push(&self, checkpoint: &Path) -> Result<Pushed> {
        let there = self.objects("tables").await?;
        let used = self.objects("generations").await?;
        // Above those that were interrupted, too.
        let number = used.keys().filter_map(|object| number_of(object)).max().unwrap_or(0) + 1;
        let mut pushed = Pushed { generation: number, tables_sent: 0, bytes_sent: 0 };
        let mut files = Vec::new();
        for name in files_of(checkpoint)? {
            let path = checkpoint.join(&name);
            let (bytes, is_table) = (fs::metadata(&path)?.len(), name.ends_with(".sst"));
            let object = match is_table {
                true => format!("tables/{:016x}-{bytes}", table_id(&path)?),
                false => format!("generations/{number:010}/{name}"),
            };
            if there.get(&object) != Some(&bytes) {
                self.put(&object, fs::read(&path)?, PutMode::Overwrite).await?;
                pushed.tables_sent += u64::from(is_table);
                pushed.bytes_sent += bytes;
            }
            files.push(BackupFile { bytes, name, object });
        }
        let generation = Generation { number, files };
        self.put(&index_of(number), generation.to_index().into(), PutMode::Create).await?;
        Ok(pushed)
    }

    /// All generations, oldest first.
    ///
    /// # Errors
    /// The failure of the store; an index that is none.
    pub async fn list(&self) -> Result<Vec<Generation>> {
        let mut found = Vec::new();
        for object in self.objects("generations").await?.keys() {
            if let Some(number) = number_of(object).filter(|number| *object == index_of(*number)) {
                let index = self.store.get(&self.path(object)).await?.bytes().await?;
                let text = std::str::from_utf8(&index).unwrap_or("");
                let generation = Generation::of_index(number, text);
                found.push(generation.ok_or_else(|| format!("{object} is no index"))?);
            }
        }
        Ok(found)
    }

    /// Writes a generation, or the last one, into a new directory. The directory appears whole: the
    /// files are written to `.NAME.unfinished` next to it, which is renamed in the end. One that
    /// was left by a restore that did not end is removed first. Answers the number.
    ///
    /// # Errors
    /// There is no such generation; the directory is there; the failure of a file or of the store.
    pub async fn restore(&self, generation: Option<u64>, directory: &Path) -> Result<u64> {
        let mut all = self.list().await?;
        all.retain(|found| generation.is_none_or(|number| found.number == number));
        let chosen = all.pop().ok_or("there is no such generation")?;
        if fs::symlink_metadata(directory).is_ok() {
            return Err(format!("{} is there already", directory.display()).into());
        }
        let unfinished = unfinished(directory)?;
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(in_file(&unfinished, &error).into());
            }
            _ => {}
        }
        fs::create_dir(&unfinished).map_err(|error| in_file(&unfinished, &error))?;
        if let Err(error) = self.fetch(&chosen, &unfinished).await {
            // What cannot be removed is removed by the next restore.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        fs::rename(&unfinished, directory).map_err(|error| in_file(directory, &error))?;
        File::open(parent(directory))?.sync_all()?;
        Ok(chosen.number)
    }

    /// Writes the files of a generation durably.
    async fn fetch(&self, generation: &Generation, directory: &Path) -> Result<()> {
        for file in &generation.files {
            let contents = self.store.get(&self.path(&file.object)).await?.bytes().await?;
            if contents.len() as u64 != file.bytes {
                let there = contents.len();
                return Err(format!("{}: {there} bytes of {}", file.object, file.bytes).into());
            }
            let mut to = File::create_new(directory.join(&file.name))?;
            to.write_all(&contents).and_then(|()| to.sync_all())?;
        }
        Ok(File::open(directory)?.sync_all()?)
    }

    /// Removes all generations but the last `keep`, and what belongs to none. Answers how many
    /// objects it removed.
    ///
    /// # Errors
    /// `keep` is 0; the failure of the store: the generations that stay are whole.
    pub async fn prune(&self, keep: usize) -> Result<u64> {
        if keep == 0 {
            return Err("at least one generation has to stay".into());
        }
        let mut stay = self.list().await?;
        let gone = stay.len().saturating_sub(keep);
        let indexes: Vec<_> = stay.drain(..gone).map(|old| index_of(old.number)).collect();
        // First: from now on they do not exist.
        let removed = self.remove(&indexes).await?;
        let files = stay.iter().flat_map(|kept| &kept.files).map(|file| file.object.clone());
        let named: BTreeSet<_> = files.chain(stay.iter().map(|g| index_of(g.number))).collect();
        let mut objects = self.objects("generations").await?;
        objects.extend(self.objects("tables").await?);
        let unnamed = objects.keys().filter(|object| !named.contains(*object));
        Ok(removed + self.remove(unnamed).await?)
    }
}

fn index_of(number: u64) -> String {
    format!("generations/{number:010}/index")
}

fn number_of(object: &str) -> Option<u64> {
    object.strip_prefix("generations/")?.split('/').next()?.parse().ok()
}

fn parent(directory: &Path) -> &Path {
    directory.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where `directory` is written before it is whole.
fn unfinished(directory: &Path) -> Result<PathBuf> {
    let name = directory.file_name().ok_or("the new directory needs a name")?;
    let name = format!(".{}.unfinished", name.to_string_lossy());
    Ok(parent(directory).join(name))
}

fn in_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The files of a checkpoint that make the database, `CURRENT` last.
fn files_of(checkpoint: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(checkpoint).map_err(|error| in_file(checkpoint, &error))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    // The first belongs to the process that has it open; the second is advisory.
    names.retain(|name| name != "LOCK" && name != "STATS");
    names.sort_by_key(|name| (name == "CURRENT", name.clone()));
    // The CURRENT of a checkpoint that was interrupted names none of them.
    let current = fs::read_to_string(checkpoint.join("CURRENT")).unwrap_or_default();
    let manifest = current.split(' ').nth(2).unwrap_or_default();
    match names.iter().any(|name| name == manifest) {
        true => Ok(names),
        false => Err(format!("{} holds no checkpoint", checkpoint.display()).into()),
    }
}

/// The random number that each table has in its header.
fn table_id(path: &Path) -> Result<u64> {
    let mut header = [0; 24];
    File::open(path)?.read_exact(&mut header).map_err(|error| in_file(path, &error))?;
    let mut id = [0; 8];
    id.copy_from_slice(&header[16..]);
    Ok(u64::from_le_bytes(id))
}
