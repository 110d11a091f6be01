//! `backup-store push|list|restore|prune`: a siftdb database in an object store.

use siftdb_backup_store::{Backups, Result};
use std::path::{Path, PathBuf};

const USAGE: &str = "\
backup-store push DB URL                        send a checkpoint of a database
backup-store list URL                           show the generations
backup-store restore URL DIR [--generation N]   make a new database of one, or of the last
backup-store prune URL --keep N                 remove all but the last N";

/// Where the checkpoint of a database stays between two pushes: next to it, so that tables are
/// linked.
fn staging(db: &Path) -> PathBuf {
    let name = db.file_name().unwrap_or_default().to_string_lossy();
    db.with_file_name(format!("{name}.checkpoint"))
}

async fn run(arguments: &[&str]) -> Result<()> {
    match *arguments {
        ["push", db, url] => {
            // A program that has its database open calls these two itself, while it writes.
            let staging = staging(Path::new(db));
            let options = siftdb::Options::new().create_if_missing(false);
            let open = options.open(db)?;
            open.checkpoint(&staging)?;
            open.close()?;
            let pushed = Backups::at(url)?.push(&staging).await?;
            let (number, tables) = (pushed.generation, pushed.tables_sent);
            println!("generation {number}: {tables} tables, {} bytes sent", pushed.bytes_sent);
        }
        ["list", url] => {
            for found in Backups::at(url)?.list().await? {
                let (files, bytes) = (found.files.len(), found.bytes());
                println!("generation {}: {files} files, {bytes} bytes", found.number);
            }
        }
        ["restore", url, to] => restore(url, to, None).await?,
        ["restore", url, to, "--generation", n] => restore(url, to, Some(n.parse()?)).await?,
        ["prune", url, "--keep", n] => {
            println!("{} objects removed", Backups::at(url)?.prune(n.parse()?).await?);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

async fn restore(url: &str, to: &str, generation: Option<u64>) -> Result<()> {
    let number = Backups::at(url)?.restore(generation, Path::new(to)).await?;
    println!("generation {number} is in {to}");
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Stores that are reached over a network need time and sockets of the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&arguments)));
    if let Err(error) = ended {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
