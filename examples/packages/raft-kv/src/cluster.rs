//! Three nodes on this machine: processes that this one starts and ends.

use crate::http_client::{Client, whole};
use crate::storage::to_json;
use crate::types::NodeId;
use hyper::Method;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts nodes 1 to 3 on `port`, `port + 1` and `port + 2`, with their databases in `directory`.
/// The first time it makes a cluster of them. `options` are those of the command `node`.
///
/// # Errors
/// A node does not start.
pub async fn start(directory: &Path, port: u16, options: &[&str]) -> io::Result<Vec<Child>> {
    let mut nodes = BTreeMap::<NodeId, String>::new();
    for id in 1..=3u16 {
        let at = port.checked_add(id - 1).ok_or_else(|| io::Error::other("the port is too large"));
        nodes.insert(id.into(), format!("127.0.0.1:{}", at?));
    }
    let mut children = Vec::new();
    for (id, listen) in &nodes {
        children.push(start_node(directory, *id, listen, options)?);
    }
    for child in &mut children {
        listens(child)?;
    }
    // Refused if they are one already.
    let request = whole(to_json(&nodes)?);
    Client::new(&nodes[&1]).send(Method::POST, "/cluster/init", request).await?;
    Ok(children)
}

fn start_node(directory: &Path, id: NodeId, listen: &str, options: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("node")
        .arg(directory.join(format!("node-{id}")))
        .args(["--id", &id.to_string(), "--listen", listen, "--until-stdin-ends"])
        .args(options)
        // It ends with this process, however this one ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Waits until the node says that it listens. To ask its address would not do: another program may
/// listen there, and answer.
fn listens(node: &mut Child) -> io::Result<()> {
    let said = node.stdout.take().ok_or_else(|| io::Error::other("a node without an output"))?;
    let mut line = String::new();
    if BufReader::new(said).read_line(&mut line)? == 0 {
        return Err(io::Error::other("a node did not start"));
    }
    print!("{line}");
    Ok(())
}
