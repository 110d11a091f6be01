//! `raft-kv cluster|node`: a replicated key-value service.

use siftdb_raft_kv::cluster;
use siftdb_raft_kv::node::{NodeOptions, run};
use std::io;
use std::num::{NonZeroU16, NonZeroU64};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
raft-kv cluster DIR [--port N] [LIMITS]  run three nodes on 127.0.0.1, from port N on (7101)
raft-kv node DIR --id N --listen ADDRESS [LIMITS] [--until-stdin-ends]
                                         run one node
LIMITS: --snapshot-after N  build a snapshot every N entries, and purge the log (10000)
        --open-proposals N  refuse writes while N wait for their outcome (512)";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The value after `name` in `arguments`.
fn value<T: std::str::FromStr>(arguments: &[&str], name: &str) -> Result<Option<T>, Error> {
    let Some(at) = arguments.iter().position(|argument| *argument == name) else {
        return Ok(None);
    };
    let text = arguments.get(at + 1).ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
    match text.parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(format!("{text} is no value for {name}\n{USAGE}").into()),
    }
}

/// Refuses what is no option. Those in `valued` have a value.
fn check(arguments: &[&str], valued: &[&str], flags: &[&str]) -> Result<(), Error> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if valued.contains(argument) {
            rest.next();
        } else if !flags.contains(argument) {
            return Err(format!("unknown option {argument}\n{USAGE}").into());
        }
    }
    Ok(())
}

/// Writes that may be open. On two cores more than 256 were no faster together, only slower each,
/// and their values take 128 MiB at most.
const OPEN_PROPOSALS: u16 = 512;

/// Entries between snapshots, and writes that may be open.
fn limits(options: &[&str]) -> Result<(u64, u16), Error> {
    let snapshot_after = value::<NonZeroU64>(options, "--snapshot-after")?;
    let open_proposals = value::<NonZeroU16>(options, "--open-proposals")?;
    Ok((
        snapshot_after.map_or(10_000, Into::into),
        open_proposals.map_or(OPEN_PROPOSALS, Into::into),
    ))
}

async fn run_command(arguments: &[&str]) -> Result<(), Error> {
    match *arguments {
        ["cluster", directory, ref options @ ..] => {
            check(options, &["--port", "--snapshot-after", "--open-proposals"], &[])?;
            let port = value(options, "--port")?.unwrap_or(7101);
            let (snapshot_after, open_proposals) = limits(options)?;
            let (after, open) = (snapshot_after.to_string(), open_proposals.to_string());
            let limits = ["--snapshot-after", &after, "--open-proposals", &open];
            let mut nodes = cluster::start(Path::new(directory), port, &limits).await?;
            println!("try: curl -L -X PUT -d 1815 http://127.0.0.1:{port}/kv/ada");
            println!("     curl -L http://127.0.0.1:{port}/kv/ada");
            tokio::signal::ctrl_c().await?;
            for node in &mut nodes {
                drop(node.stdin.take());
                node.wait()?;
            }
            Ok(())
        }
        ["node", directory, ref options @ ..] => {
            let valued = ["--id", "--listen", "--snapshot-after", "--open-proposals"];
            check(options, &valued, &["--until-stdin-ends"])?;
            let until_stdin_ends = options.contains(&"--until-stdin-ends");
            let (snapshot_after, open_proposals) = limits(options)?;
            let node = NodeOptions {
                id: value(options, "--id")?.ok_or("a node needs --id N")?,
                listen: value(options, "--listen")?.ok_or("a node needs --listen ADDRESS")?,
                directory: directory.into(),
                snapshot_after,
                open_proposals,
            };
            Ok(run(node, stopped(until_stdin_ends)).await?)
        }
        _ => Err(USAGE.into()),
    }
}

/// Waits for Ctrl-C or, if asked to, for the end of the standard input: a process that is started
/// with a pipe ends with the one that holds the other end.
async fn stopped(until_stdin_ends: bool) {
    let (sender, stdin_ended) = tokio::sync::oneshot::channel();
    // Without a thread the sender stays here, and only Ctrl-C ends the wait.
    let mut sender = Some(sender);
    if until_stdin_ends && let Some(sender) = sender.take() {
        std::thread::spawn(move || {
            // A read that fails is an end too.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            let _ = sender.send(());
        });
    }
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = stdin_ended => {}
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|rt| rt.block_on(run_command(&arguments)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
